<#
.SYNOPSIS
    Makes a freshly installed Windows the golden disk of virtual machines, then shuts it down.

.DESCRIPTION
    Run once by install.bat. Afterwards the disk has WinRM over HTTPS, no account that anybody could
    sign in with, and a task that at each start makes the machine's own certificate and account
    (once), starts WinRM and says the fingerprint of its certificate on COM1. Evidence: F, run
    under Wine only.
#>
#Requires -Version 5.1
[CmdletBinding()]
param()

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$Here = Split-Path -Parent $MyInvocation.MyCommand.Path
# Only administrators may write there: what it holds runs as SYSTEM.
$Folder = Join-Path -Path $env:ProgramFiles -ChildPath 'windows-cuda-wheels'
$KeyFile = '\\host.lan\Data\key'

. (Join-Path -Path $Here -ChildPath 'serial.ps1')

Write-Com1 -Text 'WCW-STEP settings of a virtual machine'
# QEMU's clock is in UTC, the container's zone, and Windows takes it for local time.
$zone = Join-Path -Path ([System.Environment]::SystemDirectory) -ChildPath 'tzutil.exe'
& $zone '/s' 'UTC'
if ($LASTEXITCODE -ne 0) {
    throw ('tzutil.exe ended with exit code {0}' -f $LASTEXITCODE)
}
# The first: QEMU's power button does nothing else while nobody is signed in.
# https://pve.proxmox.com/wiki/Windows_2022_guest_best_practices
# The second: no restart for updates in the middle of a build.
foreach ($setting in @(
        @{ Key = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System'; Name = 'ShutdownWithoutLogon' }
        @{ Key = 'HKLM:\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU'; Name = 'NoAutoUpdate' }
    )) {
    if (-not (Test-Path -LiteralPath $setting.Key)) {
        $null = New-Item -Path $setting.Key -Force
    }
    Set-ItemProperty -LiteralPath $setting.Key -Name $setting.Name -Value 1 -Type 'DWord'
}

Write-Com1 -Text 'WCW-STEP WinRM over HTTPS'
# Behind the container's NAT the guest sees its gateway alone: a rule by address would say nothing.
& (Join-Path -Path $Here -ChildPath 'enable-winrm-https.ps1') -HostName 'localhost', '127.0.0.1' -RemoteAddress 'Any'

if (Test-Path -LiteralPath $KeyFile -PathType Leaf) {
    Write-Com1 -Text 'WCW-STEP product key'
    $key = [System.IO.File]::ReadAllText($KeyFile).Trim()
    Remove-Item -LiteralPath $KeyFile -Force
    # Not slmgr.vbs: the key would be an argument, which every process may read.
    $null = Get-CimInstance -ClassName 'SoftwareLicensingService' |
        Invoke-CimMethod -MethodName 'InstallProductKey' -Arguments @{ ProductKey = $key }
}

Write-Com1 -Text 'WCW-STEP activation'
# Windows' own licences. An evaluation that is not activated ends after ten days, one that is after
# 180, and then shuts down every hour.
# https://learn.microsoft.com/answers/questions/5834757
$licence = @{
    ClassName = 'SoftwareLicensingProduct'
    Filter    = "ApplicationId = '55c92734-d682-4d71-983e-d6ec3f16059f' AND PartialProductKey IS NOT NULL"
}
try {
    $null = Get-CimInstance @licence | Invoke-CimMethod -MethodName 'Activate'
}
catch {
    # Without the internet; what is left then is said below.
    Write-Com1 -Text ('not activated: {0}' -f $_.Exception.Message)
}
$found = Get-CimInstance @licence | Select-Object -First 1

Write-Com1 -Text 'WCW-STEP what runs at each start'
$null = New-Item -ItemType Directory -Force -Path $Folder
foreach ($name in @('serial.ps1', 'ready.ps1', 'enable-winrm-https.ps1')) {
    Copy-Item -LiteralPath (Join-Path -Path $Here -ChildPath $name) -Destination $Folder -Force
}
$run = '-NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass -File "{0}"' -f (Join-Path -Path $Folder -ChildPath 'ready.ps1')
$task = @{
    TaskName  = 'windows-cuda-wheels-ready'
    Action    = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument $run
    Trigger   = New-ScheduledTaskTrigger -AtStartup
    Principal = New-ScheduledTaskPrincipal -UserId 'S-1-5-18' -RunLevel 'Highest'
    Settings  = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
    Force     = $true
}
$null = Register-ScheduledTask @task

# The installation signs in by itself with a password that everybody knows: that ends here. What
# signs in to a machine made of this disk is an account of its own, which ready.ps1 makes.
$logon = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon'
foreach ($name in @('DefaultPassword', 'AutoAdminLogon')) {
    Remove-ItemProperty -LiteralPath $logon -Name $name -Force -ErrorAction SilentlyContinue
}
Get-LocalUser | Where-Object -FilterScript { $_.Enabled } | Disable-LocalUser
$left = @(Get-LocalUser | Where-Object -FilterScript { $_.Enabled })
if ($left.Count -gt 0) {
    throw ('accounts are still enabled: {0}' -f ($left.Name -join ', '))
}

# 1 is licensed, 0 minutes are without an end.
Write-Com1 -Text ('WCW-GOLDEN {0} {1} {2}' -f (Get-WinRMPin), $found.LicenseStatus, $found.GracePeriodRemaining)
# Windows itself: the disk is whole only after a shutdown in good order.
$control = Join-Path -Path ([System.Environment]::SystemDirectory) -ChildPath 'shutdown.exe'
& $control '/s' '/t' '5' '/c' 'The golden disk is ready'
if ($LASTEXITCODE -ne 0) {
    throw ('shutdown.exe ended with exit code {0}' -f $LASTEXITCODE)
}
