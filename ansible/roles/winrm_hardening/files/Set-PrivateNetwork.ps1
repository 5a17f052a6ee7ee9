# Public networks become private: WinRM's firewall rules do not hold on public ones. A domain
# network stays what it is.
[CmdletBinding(SupportsShouldProcess)]
param()
$public = @(Get-NetConnectionProfile | Where-Object NetworkCategory -EQ 'Public')
$Ansible.Changed = $public.Count -gt 0
foreach ($network in $public) {
    if ($PSCmdlet.ShouldProcess($network.Name, 'make private')) {
        Set-NetConnectionProfile -InterfaceIndex $network.InterfaceIndex -NetworkCategory Private
    }
}
