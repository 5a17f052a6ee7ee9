# Sets one value of the WSMan: drive if it differs. Values there are text.
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)] [string] $Path,
    [Parameter(Mandatory)] [AllowEmptyString()] [string] $Value
)
$found = [string] (Get-Item -LiteralPath $Path).Value
$Ansible.Changed = $found -ne $Value
if ($Ansible.Changed -and $PSCmdlet.ShouldProcess($Path, "set to $Value")) {
    Set-Item -LiteralPath $Path -Value $Value -Force -WarningAction SilentlyContinue
}
