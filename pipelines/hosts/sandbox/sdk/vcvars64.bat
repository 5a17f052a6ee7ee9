@call "%~dp0vcvarsall.bat" x64
