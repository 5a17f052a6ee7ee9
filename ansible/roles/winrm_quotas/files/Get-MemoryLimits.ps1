# MaxMemoryPerShellMB of the service and of each plugin, in check mode too.
[CmdletBinding(SupportsShouldProcess)]
param([Parameter(Mandatory)] [AllowEmptyCollection()] [string[]] $Plugins)
$Ansible.Changed = $false
[int] (Get-Item -LiteralPath WSMan:\localhost\Shell\MaxMemoryPerShellMB).Value
foreach ($plugin in $Plugins) {
    [int] (Get-Item -LiteralPath "WSMan:\localhost\Plugin\$plugin\Quotas\MaxMemoryPerShellMB").Value
}
