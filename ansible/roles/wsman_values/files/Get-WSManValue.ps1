# Reads one value of the WSMan: drive, in check mode too.
[CmdletBinding(SupportsShouldProcess)]
param([Parameter(Mandatory)] [string] $Path)
$Ansible.Changed = $false
[string] (Get-Item -LiteralPath $Path).Value
