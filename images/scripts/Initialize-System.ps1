# Long paths, short directories, and where tools are found.
param(
    [Parameter(Mandatory)] [string[]] $Directories,
    [Parameter(Mandatory)] [string[]] $SearchPath
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

Set-ItemProperty -Path HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem -Name LongPathsEnabled `
    -Value 1 -Type DWord
foreach ($directory in $Directories) { $null = New-Item -ItemType Directory -Path $directory -Force }

# Not ENV PATH: a Windows image has no PATH in its configuration that ENV could extend.
$machine = [EnvironmentVariableTarget]::Machine
$old = [Environment]::GetEnvironmentVariable('Path', $machine)
$new = ($SearchPath + $old) -join ';'
[Environment]::SetEnvironmentVariable('Path', $new, $machine)
