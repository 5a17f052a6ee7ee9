# Sets the values of the WSMan: drive that differ, and says which do so all the same. Values there are
# text.
[CmdletBinding(SupportsShouldProcess)]
param([Parameter(Mandatory)] [System.Collections.IDictionary] $Wanted)
$Ansible.Changed = $false
foreach ($name in $Wanted.Keys) {
    $path, $value = "WSMan:\localhost\$name", $Wanted[$name]
    if ([string] (Get-Item -LiteralPath $path).Value -ne $value) {
        $Ansible.Changed = $true
        if ($PSCmdlet.ShouldProcess($path, "set to $value")) {
            Set-Item -LiteralPath $path -Value $value -Force -WarningAction SilentlyContinue
            $found = [string] (Get-Item -LiteralPath $path).Value
            if ($found -ne $value) { "$name is $found, wanted $value" }
        }
    }
}
