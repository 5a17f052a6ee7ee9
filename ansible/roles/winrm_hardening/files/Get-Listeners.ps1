# The listeners of the WinRM service, in check mode too.
[CmdletBinding(SupportsShouldProcess)]
param()
$Ansible.Changed = $false
foreach ($listener in Get-ChildItem -Path WSMan:\localhost\Listener) {
    $row = @{ name = $listener.Name; transport = ''; port = ''; certificatethumbprint = '' }
    foreach ($field in Get-ChildItem -Path "WSMan:\localhost\Listener\$($listener.Name)") {
        if ($row.ContainsKey($field.Name)) { $row[$field.Name] = [string] $field.Value }
    }
    $row
}
