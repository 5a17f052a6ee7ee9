# Stops the build before anything is fetched when pins have no hash yet, and names all of them;
# writes -Proof when every one has.
param(
    [Parameter(Mandatory)] [string[]] $Names,
    [Parameter(Mandatory)] [string] $Cuda,
    [Parameter(Mandatory)] [string] $Proof
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

$pins = foreach ($name in $Names + (Get-CudaPinName -Minor $Cuda)) { Get-Pin -Name $name }
Assert-Pin -Pins $pins
# The same text every time: the layers that copy it stay cached.
Set-Content -LiteralPath $Proof -Value 'every pin has a sha256' -Encoding Ascii
