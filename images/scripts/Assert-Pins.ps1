# Stops the build before it begins when a pin has no hash yet; writes -Proof when all have one.
param(
    [Parameter(Mandatory)] [string[]] $Names,
    [Parameter(Mandatory)] [string] $Cuda,
    [Parameter(Mandatory)] [string] $Proof
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

foreach ($name in $Names + (Get-CudaPinName -Minor $Cuda)) {
    foreach ($pin in Get-Pin -Name $name) { Assert-Pin -Pin $pin }
}
# The same text every time: the layers that copy it stay cached.
Set-Content -LiteralPath $Proof -Value 'every pin has a sha256' -Encoding Ascii
