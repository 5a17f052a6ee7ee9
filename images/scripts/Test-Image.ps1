# The image's own check: every tool says its version, and a CUDA program is compiled, linked with
# the static run-time and started. None of it needs a GPU.
param(
    [Parameter(Mandatory)] [string] $Cuda,
    [Parameter(Mandatory)] [string] $Toolset,
    [Parameter(Mandatory)] [string] $Pythons,
    [Parameter(Mandatory)] [string] $Runtime,
    [Parameter(Mandatory)] [string] $BuildTools
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

function Assert-Equal {
    param([string] $What, [string] $Found, [string] $Wanted)
    if ($Found -ne $Wanted) { throw "${What}: found '$Found', wanted '$Wanted'" }
    Write-Host "${What}: $Found"
}

function Assert-Like {
    param([string] $What, [string] $Found, [string] $Pattern)
    if ($Found -notmatch $Pattern) { throw "${What}: '$Found' does not match '$Pattern'" }
}

$system = Get-ItemProperty -LiteralPath HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem
Assert-Equal -What LongPathsEnabled -Found $system.LongPathsEnabled -Wanted 1
foreach ($name in 'TEMP', 'TMP') {
    Assert-Equal -What $name -Found ([Environment]::GetEnvironmentVariable($name)) -Wanted C:\t
}
$registered = Get-ItemProperty -LiteralPath HKLM:\SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\x64
Assert-Equal -What 'C run-time' -Found $registered.Installed -Wanted 1
$wanted = (Get-Pin -Name $Runtime).version
if ([version] $registered.Version.TrimStart('v') -lt [version] $wanted) {
    throw "C run-time: found $($registered.Version), wanted $wanted or newer"
}

# By name, not by path: this also shows that the machine's PATH finds them.
Assert-Like -What git -Found (Invoke-Tool -Path git.exe -Arguments '--version') -Pattern '^git version'
$long = Invoke-Tool -Path git.exe -Arguments 'config', '--system', 'core.longpaths'
Assert-Equal -What core.longpaths -Found $long -Wanted true
foreach ($name in 'uv', 'ninja', 'sccache') {
    $null = Invoke-Tool -Path "$name.exe" -Arguments '--version'
}
foreach ($pin in Get-Pin -Name $Pythons) {
    $minor = ($pin.version -split '\.')[0..1] -join '.'
    $said = Invoke-Tool -Path "C:\python\$minor\python.exe" -Arguments '-VV'
    Assert-Like -What $pin.name -Found $said -Pattern ('^Python ' + [regex]::Escape($minor) + '\.')
    foreach ($file in 'Include\Python.h', "libs\python$($minor.Replace('.', '')).lib") {
        if (-not (Test-Path -LiteralPath "C:\python\$minor\$file")) { throw "$($pin.name): no $file" }
    }
}

$vswhere = "${Env:ProgramFiles(x86)}\Microsoft Visual Studio\Installer\vswhere.exe"
$found = Invoke-Tool -Path $vswhere -Arguments '-products', 'Microsoft.VisualStudio.Product.BuildTools',
    '-requires', 'Microsoft.VisualStudio.Component.VC.Tools.x86.x64', '-property', 'installationPath'
Assert-Equal -What 'Build Tools' -Found $found -Wanted $BuildTools
$cl = Get-Item -Path "$BuildTools\VC\Tools\MSVC\$Toolset*\bin\Hostx64\x64\cl.exe" |
    Sort-Object FullName | Select-Object -Last 1
if (-not $cl) { throw "${BuildTools}: no cl.exe of toolset $Toolset" }
Write-Host "$($cl.FullName): $($cl.VersionInfo.FileVersion)"

$nvcc = Join-Path $Env:CUDA_PATH 'bin\nvcc.exe'
$said = Invoke-Tool -Path $nvcc -Arguments '--version'
Assert-Like -What nvcc -Found $said -Pattern ('release ' + [regex]::Escape($Cuda) + ',')
$scratch = New-ScratchDirectory
try {
    $source = Join-Path $scratch 'probe.cu'
    $program = Join-Path $scratch 'probe.exe'
    Set-Content -LiteralPath $source -Encoding Ascii -Value @(
        '#include <cuda_runtime.h>'
        '__global__ void probe(int *p) { *p = 1; }'
        'int main() { return CUDART_VERSION / 1000 < 12; }'
    )
    $null = Invoke-Tool -Path $nvcc -Arguments '-ccbin', $cl.DirectoryName, '-arch=sm_80',
        '-o', $program, $source
    $null = Invoke-Tool -Path $program
}
finally {
    Remove-Leftover -Path $scratch
}
