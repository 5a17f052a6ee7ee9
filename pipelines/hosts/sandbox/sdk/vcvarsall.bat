@rem The sandbox's stand-in for Visual Studio's vcvarsall.bat: the environment of the host compiler.
@set VCToolsInstallDir=C:\VS\VC\Tools\MSVC\14.40.33807\
@set VSCMD_ARG_TGT_ARCH=x64
@set PATH=C:\VS\VC\Tools\MSVC\14.40.33807\bin\Hostx64\x64;%PATH%
@rem The order matters: our C++ headers, Wine's C run-time and Win32 headers, clang's own last, for
@rem its stdarg.h uses __builtin_va_list, which cudafe++ and cicc do not know in Microsoft mode.
@set INCLUDE=C:\VS\VC\Tools\MSVC\14.40.33807\include;C:\VS\Windows Kits\10\Include\10.0.0.0\ucrt;C:\VS\Windows Kits\10\Include\10.0.0.0\um;C:\VS\Windows Kits\10\Include\10.0.0.0\shared;C:\zig\lib\include
@set LIB=C:\VS\VC\Tools\MSVC\14.40.33807\lib\x64;C:\VS\VC\Tools\MSVC\14.40.33807\libcxx\lib;C:\VS\Windows Kits\10\Lib\10.0.0.0\ucrt\x64;C:\VS\Windows Kits\10\Lib\10.0.0.0\um\x64
@rem CMake: there is neither rc.exe nor mt.exe, which it takes to put a manifest in.
@set LDFLAGS=/MANIFEST:NO
