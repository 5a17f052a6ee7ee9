<#
What Wine lacks and the scripts use, as functions, which go before cmdlets. All that they keep is in
C:\scripts\state.json and C:\scripts\store, which the tests write and read.

| stands for | why, and how it follows Windows |
|-|-|
| the WSMan: drive | COM. Values are text, as there; AllowUnencrypted cannot be set while a network is Public; `fixed` are settings that a group policy holds: Set-Item has no effect, and so has the removal of a listener whose transport is named |
| Cert:\LocalMachine\My, New-SelfSignedCertificate | Wine's CNG makes no RSA keys. The certificate is a real one, made by the tests from what is asked for |
| X509Extension.Format | hexadecimal digits under Wine. Here in words of another language than English |
| the firewall, local accounts, tasks, CIM | no back end. Errors of New-NetFirewallRule do not end a script unless it asks for that |
| services | Start-Service and Get-Service; one in `fixed` does not start |
| the serial port | .NET opens no port of Wine's ("Request not supported"): New-Object gives one that writes to serial.txt |

Programs, such as sc.exe and curl.exe, are those of windows_programs.py.
#>
$global:StatePath = 'C:\scripts\state.json'
$global:Store = 'C:\scripts\store'
$global:State = Get-Content -LiteralPath $StatePath -Raw | ConvertFrom-Json -AsHashtable

function global:Save-State { $State | ConvertTo-Json -Depth 6 | Set-Content -LiteralPath $StatePath }

# -- WinRM ------------------------------------------------------------------------------------------

function global:Get-Service {
    [CmdletBinding()] param([string] $Name)
    [pscustomobject] @{ Name = $Name; Status = [System.ServiceProcess.ServiceControllerStatus] $State.status }
}

function global:Start-Service {
    [CmdletBinding()] param([string] $Name)
    if ($State.fixed -contains $Name) { Write-Error "Service $Name cannot be started."; return }
    $State.status = 'Running'
    Save-State
}

function global:Get-ChildItem {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]] $Path, [string[]] $LiteralPath, [string] $Filter, [switch] $Force, [switch] $File)
    $first = @($Path + $LiteralPath | Where-Object { $_ })[0]
    if ($first -like 'WSMan:*' -or $first -like 'Cert:*') {
        if ($State.status -ne 'Running' -and $first -like 'WSMan:*') { throw 'WinRM does not run.' }
        if ($first -like 'Cert:*') { return Get-Stored }
        if ($first -match '^WSMan:\\localhost\\Listener\\([^\\]+)$') {
            $listener = $State.listeners[$Matches[1]]
            return $listener.Keys | ForEach-Object { [pscustomobject] @{ Name = $_; Value = $listener[$_] } }
        }
        foreach ($name in @($State.listeners.Keys)) {
            $listener = $State.listeners[$name]
            [pscustomobject] @{ Name = $name; Keys = @("Transport=$($listener.Transport)", "Address=$($listener.Address)") }
        }
        return
    }
    Microsoft.PowerShell.Management\Get-ChildItem @PSBoundParameters
}

function global:Get-Item {
    [CmdletBinding()] param([Parameter(Position = 0)] [string] $Path, [string] $LiteralPath, [switch] $Force)
    $place = $Path + $LiteralPath
    if ($place -match '^WSMan:\\localhost\\Listener\\([^\\]+)\\(\w+)$') {
        if (-not $State.listeners.ContainsKey($Matches[1])) { throw "Cannot find path '$place'." }
        return [pscustomobject] @{ Value = $State.listeners[$Matches[1]][$Matches[2]] }
    }
    if ($place -match '^WSMan:\\localhost\\Service\\(.+)$') {
        if (-not $State.service.ContainsKey($Matches[1])) { throw "Cannot find path '$place'." }
        return [pscustomobject] @{ Value = $State.service[$Matches[1]] }
    }
    if ($place -match '^WSMan:\\localhost\\(.+)$') {
        if (-not $State.quotas.ContainsKey($Matches[1])) { throw "Cannot find path '$place'." }
        return [pscustomobject] @{ Value = $State.quotas[$Matches[1]] }
    }
    if ($place -match '^Cert:\\LocalMachine\\My\\(\w{40})$') {
        $thumbprint = $Matches[1]
        $found = Get-Stored | Where-Object { $_.Thumbprint -eq $thumbprint }
        if (-not $found) { throw "Cannot find path '$place' because it does not exist." }
        return $found
    }
    Microsoft.PowerShell.Management\Get-Item @PSBoundParameters
}

function global:Set-Item {
    [CmdletBinding()] param([string] $Path, [string] $LiteralPath, $Value, [switch] $Force)
    $null = Get-Item -LiteralPath ($Path + $LiteralPath)
    if ($Path + $LiteralPath -notmatch '^WSMan:\\localhost\\(Service\\)?(.+)$') { throw "Set-Item: $Path$LiteralPath" }
    $values = if ($Matches[1]) { $State.service } else { $State.quotas }
    if ($Matches[1] -and $Matches[2] -eq 'AllowUnencrypted' -and $State.networks.Values -contains 'Public') {
        throw 'WinRM firewall exception will not work since one of the network connection types on this machine is set to Public.'
    }
    if ($State.fixed -notcontains $Matches[2]) {
        $text = [string] $Value
        $values[$Matches[2]] = if ($Value -is [bool]) { $text.ToLowerInvariant() } else { $text }
    }
    Save-State
}

function global:New-Item {
    [CmdletBinding()] param([string] $Path, [string] $ItemType, $Address, $Transport, $Port, $CertificateThumbPrint, $Enabled, [switch] $Force)
    if ($Path -ne 'WSMan:\localhost\Listener') { return Microsoft.PowerShell.Management\New-Item @PSBoundParameters }
    if ($State.refused -contains 'listener') { throw 'The WinRM client cannot process the request.' }
    if ($Transport -eq 'HTTPS') { $null = Get-Item -LiteralPath "Cert:\LocalMachine\My\$CertificateThumbPrint" }
    $State.listeners["Listener_$(Get-Random)"] = @{
        Transport = $Transport; Address = $Address; Port = [string] $Port
        Enabled = ([string] $Enabled).ToLowerInvariant(); CertificateThumbprint = $CertificateThumbPrint
    }
    Save-State
}

function global:Remove-Item {
    [CmdletBinding()] param([Parameter(Position = 0)] [string[]] $Path, [string[]] $LiteralPath, [switch] $Recurse, [switch] $Force)
    if ("$Path$LiteralPath" -match '^WSMan:\\localhost\\Listener\\([^\\]+)$') {
        if (-not $Recurse) { throw "$($Matches[0]) has children: Remove-Item would ask" } # its settings
        if ($State.fixed -notcontains $State.listeners[$Matches[1]].Transport) { $State.listeners.Remove($Matches[1]) }
        Save-State
        return
    }
    Microsoft.PowerShell.Management\Remove-Item @PSBoundParameters
}

# -- certificates -----------------------------------------------------------------------------------

function global:New-SelfSignedCertificate {
    [CmdletBinding()] param($Type, $Subject, $FriendlyName, $CertStoreLocation, $KeyAlgorithm, $KeyLength, $HashAlgorithm, $KeyExportPolicy, $KeyUsage, $NotAfter, [string[]] $TextExtension)
    if ($State.refused -contains 'certificate') { return }
    $wanted = @{ subject = $Subject; until = ([DateTimeOffset] $NotAfter).ToUnixTimeSeconds(); extensions = @($TextExtension) }
    [System.IO.File]::WriteAllText("$Store.part", (ConvertTo-Json -InputObject $wanted))
    [System.IO.File]::Move("$Store.part", "$Store.wanted")
    while ([System.IO.File]::Exists("$Store.wanted")) { Start-Sleep -Milliseconds 20 }
    $thumbprint = [System.IO.File]::ReadAllText("$Store.made")
    $State.made = @{ thumbprint = $thumbprint; length = $KeyLength; usage = @($KeyUsage); extensions = $TextExtension; export = "$KeyExportPolicy" }
    $State.friendly[$thumbprint] = $FriendlyName
    Save-State
    Get-Stored | Where-Object { $_.Thumbprint -eq $thumbprint }
}

function global:Get-Stored {
    foreach ($file in @(Microsoft.PowerShell.Management\Get-ChildItem -Path $Store -Filter *.pem -ErrorAction SilentlyContinue)) {
        $pem = [System.IO.File]::ReadAllText($file.FullName)
        $found = [System.Security.Cryptography.X509Certificates.X509Certificate2]::CreateFromPem($pem)
        $names = $found.Extensions | Where-Object { $_.Oid.Value -eq '2.5.29.17' }
        $words = @()
        if ($names) {
            $words = @($names.EnumerateDnsNames() | ForEach-Object { "DNS-Name=$_" }) + @($names.EnumerateIPAddresses() | ForEach-Object { "IP-Adresse=$_" })
        }
        $shown = [pscustomobject] @{ Oid = [pscustomobject] @{ Value = '2.5.29.17' }; Words = $words -join ', ' }
        $shown | Add-Member -MemberType ScriptMethod -Name Format -Value { param($lines) $this.Words }
        $extensions = @($found.Extensions | Where-Object { $_.Oid.Value -ne '2.5.29.17' }) + @($shown)
        $found | Add-Member -NotePropertyName HasPrivateKey -NotePropertyValue ($pem -match 'PRIVATE KEY') -Force
        $found | Add-Member -NotePropertyName FriendlyName -NotePropertyValue ([string] $State.friendly[$found.Thumbprint]) -Force
        $found | Add-Member -NotePropertyName Extensions -NotePropertyValue $extensions -Force
        $found
    }
}

# -- the serial port --------------------------------------------------------------------------------

$global:OpenPort = $false

function global:New-Object {
    [CmdletBinding()] param([Parameter(Position = 0)] [string] $TypeName, [Parameter(Position = 1)] [object[]] $ArgumentList)
    if ($TypeName -ne 'System.IO.Ports.SerialPort') { return Microsoft.PowerShell.Utility\New-Object @PSBoundParameters }
    $port = [pscustomobject] @{ Name = $ArgumentList[0]; IsOpen = $false }
    $port | Add-Member -MemberType ScriptMethod -Name Open -Value {
        if ($this.Name -ne 'COM1') { throw "Could not find file '$($this.Name)'." } # a machine has one
        if ($global:OpenPort) { throw "Access to the port '$($this.Name)' is denied." }
        $this.IsOpen = $global:OpenPort = $true
    }
    $port | Add-Member -MemberType ScriptMethod -Name Write -Value {
        param($text)
        if (-not $this.IsOpen) { throw 'The port is closed.' }
        [System.IO.File]::AppendAllText('C:\scripts\serial.txt', $text)
    }
    $port | Add-Member -MemberType ScriptMethod -Name Dispose -Value { $this.IsOpen = $global:OpenPort = $false }
    $port
}

# -- the firewall -----------------------------------------------------------------------------------

function global:Get-NetFirewallRule {
    [CmdletBinding()] param($Name, [Parameter(ValueFromPipeline)] $Filter)
    process {
        if ($Filter) { $Name = $Filter.InstanceID }
        if (-not $State.firewall.ContainsKey($Name)) {
            Write-Error "No MSFT_NetFirewallRule objects found with property 'InstanceID' equal to '$Name'."
            return
        }
        $rule = @{ Name = $Name; DisplayName = $Name; Direction = 'Inbound'; Program = 'Any' } + $State.firewall[$Name]
        [pscustomobject] $rule
    }
}

function global:Get-NetFirewallPortFilter {
    [CmdletBinding()] param($PolicyStore)
    foreach ($name in @($State.firewall.Keys)) {
        [pscustomobject] @{ InstanceID = $name; Protocol = 'TCP'; LocalPort = $State.firewall[$name].LocalPort }
    }
}

function global:Get-NetFirewallApplicationFilter { param([Parameter(ValueFromPipeline)] $Rule) process { [pscustomobject] @{ Program = $Rule.Program } } }
function global:Get-NetFirewallServiceFilter { param([Parameter(ValueFromPipeline)] $Rule) process { [pscustomobject] @{ Service = 'Any' } } }
function global:Get-NetFirewallAddressFilter { param([Parameter(ValueFromPipeline)] $Rule) process { [pscustomobject] @{ RemoteAddress = $Rule.RemoteAddress } } }

function global:New-NetFirewallRule {
    [CmdletBinding()] param($DisplayName, $Name, $Direction, $Action, $Protocol, $LocalPort, $RemoteAddress, $Profile, $Enabled)
    if ($State.refused -contains 'firewall') { Write-Error 'The address is invalid.'; return }
    $State.firewall[$Name] = @{ LocalPort = $LocalPort; RemoteAddress = $RemoteAddress; Action = "$Action"; Enabled = "$Enabled" }
    Save-State
}

function global:Set-NetFirewallRule {
    [CmdletBinding()] param($Name, $Direction, $Action, $Protocol, $LocalPort, $RemoteAddress, $Profile, $Enabled)
    if (-not $State.firewall.ContainsKey($Name)) { Write-Error "no rule $Name"; return }
    New-NetFirewallRule @PSBoundParameters
}

function global:Get-NetConnectionProfile {
    foreach ($index in @($State.networks.Keys)) { [pscustomobject] @{ Name = $index; InterfaceIndex = $index; NetworkCategory = $State.networks[$index] } }
}

function global:Set-NetConnectionProfile {
    [CmdletBinding()] param($InterfaceIndex, $NetworkCategory)
    if ($State.networks[$InterfaceIndex] -like 'Domain*') { throw 'Unable to set NetworkCategory.' }
    $State.networks[$InterfaceIndex] = $NetworkCategory
    Save-State
}

# -- accounts, tasks, licences ----------------------------------------------------------------------

function global:New-LocalUser {
    [CmdletBinding()] param($Name, [securestring] $Password, [switch] $PasswordNeverExpires, [switch] $AccountNeverExpires)
    if ($State.users.ContainsKey($Name)) { throw "User $Name already exists." }
    $State.users[$Name] = @{ enabled = $true; password = (ConvertFrom-SecureString -SecureString $Password -AsPlainText); groups = @() }
    Save-State
}

function global:Add-LocalGroupMember {
    [CmdletBinding()] param($SID, $Member)
    if (-not $State.users.ContainsKey($Member)) { throw "Principal $Member was not found." }
    $State.users[$Member].groups += "$SID"
    Save-State
}

function global:Get-LocalUser {
    foreach ($name in @($State.users.Keys)) { [pscustomobject] @{ Name = $name; Enabled = $State.users[$name].enabled } }
}

function global:Disable-LocalUser {
    [CmdletBinding()] param([Parameter(ValueFromPipeline = $true)] $InputObject)
    process {
        if ($State.fixed -notcontains $InputObject.Name) { $State.users[$InputObject.Name].enabled = $false }
        Save-State
    }
}

function global:New-ScheduledTaskAction { param($Execute, $Argument) "$Execute $Argument" }
function global:New-ScheduledTaskTrigger { param([switch] $AtStartup) "AtStartup=$AtStartup" }
function global:New-ScheduledTaskPrincipal { param($UserId, $RunLevel) "$UserId $RunLevel" }
function global:New-ScheduledTaskSettingsSet { param([switch] $AllowStartIfOnBatteries, [switch] $DontStopIfGoingOnBatteries) 'settings' }
function global:Register-ScheduledTask {
    [CmdletBinding()] param($TaskName, $Action, $Trigger, $Principal, $Settings, [switch] $Force)
    $State.tasks[$TaskName] = @{ action = $Action; trigger = $Trigger; principal = $Principal }
    Save-State
}

function global:Get-CimInstance {
    [CmdletBinding()] param($ClassName, $Filter)
    $licence = if ($ClassName -eq 'SoftwareLicensingProduct') { $State.licence } else { @{} }
    [pscustomobject] (@{ Class = $ClassName } + $licence)
}
function global:Invoke-CimMethod {
    [CmdletBinding()] param([Parameter(ValueFromPipeline = $true)] $InputObject, $MethodName, $Arguments)
    process {
        if ($State.refused -contains $MethodName) { throw '0xC004F074 No key management service could be contacted.' }
        $key = if ($Arguments) { $Arguments.ProductKey }
        $State.called[$MethodName] = @{ class = $InputObject.Class; key = $key }
        if ($MethodName -eq 'Activate') { $State.licence = @{ LicenseStatus = 1; GracePeriodRemaining = 259200 } }
        Save-State
    }
}
