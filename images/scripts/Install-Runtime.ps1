# The Visual C++ run-time: a bare image has none, and every extension module needs it.
param([Parameter(Mandatory)] [string] $Name)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

$scratch = New-ScratchDirectory
try {
    $installer = Get-PinnedFile -Pin (Get-Pin -Name $Name) -Directory $scratch
    $log = Join-Path $scratch 'vc-redist.log'
    $process = Start-Process -FilePath $installer -Wait -PassThru `
        -ArgumentList '/install', '/quiet', '/norestart', '/log', $log
    # 1638: a newer one is there; Test-Image.ps1 looks at its version.
    if ($process.ExitCode -notin 0, 1638, 3010) {
        Get-ChildItem -LiteralPath $scratch -Filter *.log | Get-Content -Tail 40 | Write-Host
        throw "the C run-time's installer exited with $($process.ExitCode)"
    }
}
finally {
    Remove-Leftover -Path $scratch
}
