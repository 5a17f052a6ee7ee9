# Removes one listener by its name, as Get-Listeners.ps1 gives it.
[CmdletBinding(SupportsShouldProcess)]
param([Parameter(Mandatory)] [string] $Name)
$Ansible.Changed = $true
if ($PSCmdlet.ShouldProcess($Name, 'remove')) {
    Remove-Item -Path "WSMan:\localhost\Listener\$Name" -Recurse -Force
}
