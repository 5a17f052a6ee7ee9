# Says which files do not have their hash.
[CmdletBinding()]
param(
    [Parameter(Mandatory)] [string] $Directory,
    [Parameter(Mandatory)] [System.Collections.IDictionary] $Hashes
)
$Ansible.Changed = $false
foreach ($file in $Hashes.Keys) {
    $found = (Get-FileHash -LiteralPath (Join-Path $Directory $file) -Algorithm SHA256).Hash.ToLowerInvariant()
    if ($found -ne $Hashes[$file]) { "$file has sha256 $found, pinned is $($Hashes[$file])" }
}
