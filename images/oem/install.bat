@echo off
rem Run by the image that installs Windows (dockurr/windows), once, at the first sign-in, as
rem administrator, in a window that nobody sees: what matters goes to COM1, which is its log.
powershell.exe -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:\OEM\golden.ps1 > C:\OEM\golden.log 2>&1
if errorlevel 1 (
    type C:\OEM\golden.log > COM1
    echo WCW-FAILED golden.ps1 ended with an error, its output is above > COM1
    shutdown.exe /s /t 5
)
