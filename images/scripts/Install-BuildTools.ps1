# Visual Studio Build Tools from a pinned bootstrapper. The parameters but -Path are names of build
# arguments; what they hold is the lock's: whose signature the bootstrapper must have, its arguments
# of a first run, in which its installer updates itself, and those of the one that installs.
param(
    [Parameter(Mandatory)] [string] $Bootstrapper,
    [Parameter(Mandatory)] [string] $Signer,
    [Parameter(Mandatory)] [string] $Prepare,
    [Parameter(Mandatory)] [string] $Arguments,
    [Parameter(Mandatory)] [string] $Components,
    [Parameter(Mandatory)] [string] $Path
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

function Get-Word {
    param([Parameter(Mandatory)] [string] $Name)
    $words = @([Environment]::GetEnvironmentVariable($Name) -split '\s+' | Where-Object { $_ })
    if ($words.Count -eq 0) { throw "${Name}: nothing is in it; run invoke lock --sync" }
    $words
}

$ids = @(Get-Word -Name $Components)
$first = @(Get-Word -Name $Prepare)
$second = @(Get-Word -Name $Arguments) + @('--installPath', $Path)
foreach ($id in $ids) { $second += @('--add', $id) }
$scratch = New-ScratchDirectory
try {
    $setup = Get-PinnedFile -Pin (Get-Pin -Name $Bootstrapper) -Directory $scratch
    $organisation = [Environment]::GetEnvironmentVariable($Signer)
    $signature = Get-AuthenticodeSignature -LiteralPath $setup
    if ("$($signature.Status)" -ne 'Valid' -or
        $signature.SignerCertificate.Subject -notmatch "(^|, )O=`"?$([regex]::Escape($organisation))`"?(,|$)") {
        throw "${setup}: expected a valid signature of ${organisation}, found $($signature.Status) of $($signature.SignerCertificate.Subject)"
    }
    foreach ($run in $first, $second) {
        $process = Start-Process -FilePath $setup -ArgumentList $run -Wait -PassThru
        if ($process.ExitCode -notin 0, 1641, 3010) { break }
    }
    if ($process.ExitCode -notin 0, 1641, 3010) {
        # The errors into the build's log, all logs where docker cp finds them.
        $logs = Get-ChildItem -LiteralPath $Env:TEMP -Filter 'dd_*.log' | Sort-Object LastWriteTime
        if ($logs) { Compress-Archive -LiteralPath $logs.FullName -DestinationPath C:\vslogs.zip -Force }
        $logs | Where-Object Name -Like '*errors*' | Get-Content -Tail 60 | Write-Host
        throw "the installer exited with $($process.ExitCode); its logs: docker cp <id>:C:\vslogs.zip ."
    }
    $vswhere = "${Env:ProgramFiles(x86)}\Microsoft Visual Studio\Installer\vswhere.exe"
    $found = Invoke-Tool -Path $vswhere -Arguments '-path', $Path, '-property', 'catalog_productSemanticVersion'
    $wanted = (Get-Pin -Name $Bootstrapper).version
    if (($found -split '\+')[0] -ne $wanted) { throw "$Path has $found, wanted $wanted" }
}
finally {
    Remove-Leftover -Path $scratch
}
Remove-Leftover -Path @(Get-ChildItem -LiteralPath $Env:TEMP -Force | ForEach-Object FullName)
