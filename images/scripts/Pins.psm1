# Reads pins from build arguments and fetches what they name. A pin is an object with name, version,
# file, url (null: the file is in the build context) and sha256 (empty: not pinned yet).
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

function Get-Pin {
    # The pins in the build argument -Name: one object or a list of them.
    param([Parameter(Mandatory)] [string] $Name)
    $text = [Environment]::GetEnvironmentVariable($Name)
    if (-not $text) {
        throw "build argument $Name is not set: the generated block of the Dockerfile has no such pins"
    }
    ConvertFrom-Json -InputObject $text | ForEach-Object { $_ }
}

function Get-CudaPinName {
    # 12.8 -> CUDA_12_8
    param([Parameter(Mandatory)] [ValidatePattern('^\d+\.\d+$')] [string] $Minor)
    'CUDA_' + $Minor.Replace('.', '_')
}

function Assert-Pin {
    # Verification is never left out: what has no hash is not fetched at all.
    param([Parameter(Mandatory)] [psobject[]] $Pins)
    $without = @($Pins | Where-Object sha256 -NotMatch '^[0-9a-f]{64}$')
    if ($without.Count -gt 0) {
        $names = ($without | ForEach-Object { "$($_.name) $($_.version)" }) -join ', '
        throw "not pinned yet: $names. Run invoke lock on a connected machine, then invoke lock --sync"
    }
}

function Get-PinnedFile {
    # Fetches a pin into -Directory, verifies it and returns its path.
    param(
        [Parameter(Mandatory)] [psobject] $Pin,
        [Parameter(Mandatory)] [string] $Directory
    )
    Assert-Pin -Pins $Pin
    $target = Join-Path $Directory $Pin.file
    if ($Pin.url) {
        $curl = Join-Path ([Environment]::SystemDirectory) 'curl.exe'
        & $curl --fail --silent --show-error --location --proto =https --proto-redir =https `
            --retry 5 --retry-delay 5 --output $target $Pin.url
        if ($LASTEXITCODE -ne 0) { throw "$($Pin.url): curl exited with $LASTEXITCODE" }
    }
    else {
        $staged = Join-Path "$PSScriptRoot\files" $Pin.file
        if (-not (Test-Path -LiteralPath $staged)) {
            throw "$($Pin.file) is not in the build context: invoke image build puts it there"
        }
        Copy-Item -LiteralPath $staged -Destination $target
    }
    $found = (Get-FileHash -Algorithm SHA256 -LiteralPath $target).Hash.ToLowerInvariant()
    if ($found -ne $Pin.sha256) {
        Remove-Item -LiteralPath $target
        throw "$($Pin.file) has sha256 $found, pinned is $($Pin.sha256)"
    }
    $target
}

function New-ScratchDirectory {
    # Made before a download and removed in the same layer.
    $path = Join-Path $Env:TEMP ([Guid]::NewGuid().ToString('N').Substring(0, 8))
    (New-Item -ItemType Directory -Path $path).FullName
}

function Remove-Leftover {
    # As far as it can be removed: a helper that an installer left running holds files open, and that
    # is no reason to fail, nor may it hide why a build failed.
    param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]] $Path)
    $kept = @()
    foreach ($item in $Path) {
        Remove-Item -LiteralPath $item -Recurse -Force -ErrorAction SilentlyContinue -ErrorVariable +kept
    }
    if ($kept.Count -gt 0) { Write-Host "$($kept.Count) files are in use and stay: $($kept[0])" }
}

function Invoke-Tool {
    # Runs a program, shows and returns what it prints; any exit code but 0 is an error.
    param(
        [Parameter(Mandatory)] [string] $Path,
        [string[]] $Arguments = @()
    )
    $text = (& $Path @Arguments | Out-String).Trim()
    if ($LASTEXITCODE -ne 0) { throw "$Path $Arguments exited with ${LASTEXITCODE}: $text" }
    Write-Host "${Path}: $text"
    $text
}

Export-ModuleMember -Function 'Get-Pin', 'Get-CudaPinName', 'Assert-Pin', 'Get-PinnedFile',
    'New-ScratchDirectory', 'Remove-Leftover', 'Invoke-Tool'
