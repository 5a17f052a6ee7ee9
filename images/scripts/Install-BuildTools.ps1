# Visual Studio Build Tools from a pinned bootstrapper and channel manifest: the manifest, not the
# bootstrapper, decides which versions are installed.
param(
    [Parameter(Mandatory)] [string] $Bootstrapper,
    [Parameter(Mandatory)] [string] $Channel,
    [Parameter(Mandatory)] [string] $Components,
    [Parameter(Mandatory)] [string] $Path
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

$ids = @([Environment]::GetEnvironmentVariable($Components) -split '\s+' | Where-Object { $_ })
if ($ids.Count -eq 0) { throw "${Components}: no components; run invoke lock --sync" }
$scratch = New-ScratchDirectory
try {
    $setup = Get-PinnedFile -Pin (Get-Pin -Name $Bootstrapper) -Directory $scratch
    $manifest = Get-PinnedFile -Pin (Get-Pin -Name $Channel) -Directory $scratch
    $arguments = @('--quiet', '--wait', '--norestart', '--nocache', '--installPath', $Path)
    $arguments += @('--channelUri', $manifest, '--installChannelUri', $manifest)
    foreach ($id in $ids) { $arguments += @('--add', $id) }
    $process = Start-Process -FilePath $setup -ArgumentList $arguments -Wait -PassThru
    if ($process.ExitCode -notin 0, 3010) {
        # The errors into the build's log, all logs where docker cp finds them.
        $logs = Get-ChildItem -Path $Env:TEMP -Filter 'dd_*.log' | Sort-Object LastWriteTime
        if ($logs) { Compress-Archive -Path $logs.FullName -DestinationPath C:\vslogs.zip -Force }
        $logs | Where-Object Name -Like '*errors*' | Get-Content -Tail 60 | Write-Host
        throw "the installer left with $($process.ExitCode); its logs: docker cp <id>:C:\vslogs.zip ."
    }
}
finally {
    Remove-Leftover -Path $scratch
}
Remove-Leftover -Path @(Get-ChildItem -LiteralPath $Env:TEMP -Force | ForEach-Object FullName)
