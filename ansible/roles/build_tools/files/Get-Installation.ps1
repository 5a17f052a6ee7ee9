# What is in a directory: the version of its product, empty without one, whether that has every
# component, and whether modify can extend it. Of a path without an installation vswhere says nothing,
# and ends with 0: https://github.com/microsoft/vswhere/blob/main/src/vswhere/Program.cpp
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)] [string] $Vswhere,
    [Parameter(Mandatory)] [string] $Path,
    [Parameter(Mandatory)] [string[]] $Components
)
$Ansible.Changed = $false

function Read-Property {
    & $Vswhere @args
    if ($LASTEXITCODE -ne 0) { throw "$Vswhere exited with $LASTEXITCODE" }
}

$found = @{ product = ''; complete = $false }
$found.present = Test-Path -LiteralPath (Join-Path $Path 'Common7\Tools\VsDevCmd.bat')
if (Test-Path -LiteralPath $Vswhere) {
    $found.product = [string] (Read-Property -path $Path -property catalog_productSemanticVersion)
    $complete = Read-Property -products * -property installationPath -requires @Components
    $found.complete = @($complete) -contains $Path
}
$found
