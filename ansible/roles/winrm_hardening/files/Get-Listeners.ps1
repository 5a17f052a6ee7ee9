# The listeners of the WinRM service, in check mode too.
[CmdletBinding(SupportsShouldProcess)]
param()
$Ansible.Changed = $false
foreach ($listener in Get-ChildItem -LiteralPath WSMan:\localhost\Listener) {
    $row = @{ name = $listener.Name; transport = ''; port = ''; certificatethumbprint = '' }
    foreach ($field in Get-ChildItem -LiteralPath "WSMan:\localhost\Listener\$($listener.Name)") {
        $key = $field.Name.ToLowerInvariant()
        if ($row.ContainsKey($key) -and $key -ne 'name') { $row[$key] = [string] $field.Value }
    }
    $row
}
