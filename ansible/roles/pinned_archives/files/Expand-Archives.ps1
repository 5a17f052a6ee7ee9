# Unpacks archives in place of what a directory has, removes them, and lists them at the end: where
# the list is, everything is.
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)] [string] $Source,
    [Parameter(Mandatory)] [string[]] $Files,
    [Parameter(Mandatory)] [string] $Directory,
    [Parameter(Mandatory)] [string] $List,
    [Parameter(Mandatory)] [string] $Proof,
    [int] $Strip = 0,
    [string] $Member = ''
)
$there = Join-Path $Directory '.archives.json'
if ($PSCmdlet.ShouldProcess($Directory, 'unpack')) {
    # The list first: what is removed only in part must not look complete.
    if (Test-Path -LiteralPath $there) { Remove-Item -LiteralPath $there -Force }
    Get-ChildItem -LiteralPath $Directory -Force | Remove-Item -Recurse -Force
    # bsdtar, part of Windows since 1803; it reads zips as well.
    $tar = Join-Path ([Environment]::SystemDirectory) 'tar.exe'
    foreach ($file in $Files) {
        $arguments = @('-xf', (Join-Path $Source $file), '-C', $Directory, "--strip-components=$Strip")
        if ($Member) { $arguments += $Member }
        # Else a warning on its error stream would end this script in Windows PowerShell.
        $said = & { $ErrorActionPreference = 'Continue'; & $tar @arguments 2>&1 }
        if ($LASTEXITCODE -ne 0) { throw "tar exited with $LASTEXITCODE, unpacking ${file}: $said" }
    }
    if (-not (Test-Path -LiteralPath (Join-Path $Directory $Proof))) {
        throw "$Directory lacks ${Proof}: the archives are not what the role expects"
    }
    Remove-Item -LiteralPath $Source -Recurse -Force
    [System.IO.File]::WriteAllText($there, $List)
}
