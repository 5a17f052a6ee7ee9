# Unpacks pinned zips, tarballs or wheels. In -Folder, -Member and -Proof, {name}, {version} and
# {minor} stand for those of each pin. What a directory was made of is listed in its .archives.json,
# as `invoke provision` lists it: it finds its work done.
param(
    [Parameter(Mandatory)] [string] $Name,
    [Parameter(Mandatory)] [string] $Root,
    [string] $Folder = '',
    [string] $Member = '',
    [ValidateRange(0, 9)] [int] $Strip = 0,
    [Parameter(Mandatory)] [string] $Proof
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
Import-Module "$PSScriptRoot\Pins.psm1"

function Expand-Text {
    param([string] $Text, [psobject] $Pin)
    $minor = ($Pin.version -split '\.')[0..1] -join '.'
    $Text.Replace('{name}', $Pin.name).Replace('{version}', $Pin.version).Replace('{minor}', $minor)
}

# bsdtar is part of Windows, reads zips too, and is many times faster than Expand-Archive.
$tar = Join-Path ([Environment]::SystemDirectory) 'tar.exe'
$listed = @{}
$proofs = @()
$scratch = New-ScratchDirectory
try {
    foreach ($pin in Get-Pin -Name $Name) {
        $directory = $Root
        if ($Folder) { $directory = Join-Path $Root (Expand-Text -Text $Folder -Pin $pin) }
        if (-not $listed.ContainsKey($directory)) {
            $null = New-Item -ItemType Directory -Path $directory -Force
            $listed[$directory] = [ordered] @{}
        }
        $archive = Get-PinnedFile -Pin $pin -Directory $scratch
        $arguments = @('-xf', $archive, '-C', $directory, "--strip-components=$Strip")
        if ($Member) { $arguments += Expand-Text -Text $Member -Pin $pin }
        $null = Invoke-Tool -Path $tar -Arguments $arguments
        Remove-Item -LiteralPath $archive
        $listed[$directory][$pin.name] = $pin.sha256
        $proofs += Join-Path $directory (Expand-Text -Text $Proof -Pin $pin)
    }
}
finally {
    Remove-Leftover -Path $scratch
}
foreach ($file in $proofs) {
    if (-not (Test-Path -LiteralPath $file -PathType Leaf)) { throw "the archives hold no $file" }
}
foreach ($directory in $listed.Keys) {
    # Set-Content would begin the file with a byte order mark.
    $json = ConvertTo-Json -InputObject $listed[$directory] -Compress
    [IO.File]::WriteAllText((Join-Path $directory '.archives.json'), $json)
}
