@rem The sandbox's stand-in for Visual Studio's vcvarsall.bat: the environment of the host compiler.
@set VCToolsInstallDir=C:\VS\VC\Tools\MSVC\14.40.33807\
@set VSCMD_ARG_TGT_ARCH=x64
@rem setuptools: take compiler, INCLUDE and LIB from here instead of asking vswhere.
@set DISTUTILS_USE_SDK=1
@set MSSdk=1
@set PATH=C:\VS\VC\Tools\MSVC\14.40.33807\bin\Hostx64\x64;%PATH%
@rem The order matters: our C++ headers, Wine's C run-time and Win32 headers, clang's own last, for
@rem its stdarg.h uses __builtin_va_list, which cudafe++ and cicc do not know in Microsoft mode.
@set INCLUDE=C:\sdk\cxx;C:\sdk\ucrt;C:\sdk\win32;C:\zig\lib\include
@set LIB=C:\sdk\lib
@rem CL is read by every cl.exe, also by those that nvcc starts:
@rem  _CRTIMP, _ACRTIMP empty: Wine marks functions dllimport, which clashes with CUDA's declarations
@rem  __CRTDECL: used by CUDA's math headers, not defined by Wine's
@rem  threadSafeInit-: there is no run-time behind function-local statics
@rem  -fkeep-persistent-storage-variables: clang drops the unreferenced static that carries the fat
@rem   binary: a green build without device code
@set CL=/D_CRTIMP= /D_ACRTIMP= /D__CRTDECL=__cdecl /Zc:threadSafeInit- /clang:-fkeep-persistent-storage-variables
