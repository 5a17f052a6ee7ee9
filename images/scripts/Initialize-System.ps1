# Long paths, short directories, and where tools are found.
param(
    [Parameter(Mandatory)] [string[]] $Directories,
    [Parameter(Mandatory)] [string[]] $SearchPath
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

Set-ItemProperty -LiteralPath HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem -Name LongPathsEnabled `
    -Value 1 -Type DWord
foreach ($directory in $Directories) {
    $null = New-Item -ItemType Directory -Path $directory -Force
    # `invoke provision` refuses a directory that other accounts may change. None is here yet.
    $null = Invoke-Tool -Path C:\Windows\System32\icacls.exe -Arguments $directory, '/inheritance:r', '/grant:r',
        '*S-1-5-18:(OI)(CI)F', '*S-1-5-32-544:(OI)(CI)F', '*S-1-5-32-545:(OI)(CI)RX'
}

# Not ENV PATH: a Windows image has no PATH in its configuration that ENV could extend.
$machine = [EnvironmentVariableTarget]::Machine
$old = [Environment]::GetEnvironmentVariable('Path', $machine)
$new = ($SearchPath + $old) -join ';'
[Environment]::SetEnvironmentVariable('Path', $new, $machine)
