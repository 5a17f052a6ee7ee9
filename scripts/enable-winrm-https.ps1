<#
.SYNOPSIS
    Makes a Windows machine a build host: WinRM over HTTPS, and nothing else.

.DESCRIPTION
    Run once, as administrator, at the machine itself: it removes the listener through which a
    remote session over HTTP comes. Windows 10, Windows Server 2016 or newer. Running it again
    changes nothing, except that a certificate which has expired, or soon will, or has not all
    names, or could sign other certificates (as this script made them once) is replaced. It does:

    - a self-signed certificate for the given names (or the one whose thumbprint is given), which
      vouches for this machine and for no other
    - the WinRM service: started, delayed automatic start ("automatic" proved unreliable after a
      restart), unencrypted traffic off, sign-in by Negotiate (NTLM) and Kerberos only, and only
      where it is bound to this very TLS connection (channel binding): what somebody in between
      passes on is refused
    - an HTTPS listener with that certificate
    - a firewall rule that lets only the given addresses in, on the HTTPS port
    - once that listener answers, the HTTP listener is removed unless -KeepHttp
    - LocalAccountTokenFilterPolicy=1: without it, a local administrator who signs in over the
      network gets no administrator's rights. The price: whoever knows the password of a local
      administrator has these rights from afar, too. -SkipTokenPolicy leaves it alone, which is
      right for accounts of a domain.
    - the certificate (its public part only) as a PEM file that only administrators may change, for
      the machine that builds from here; its sha256 is printed, to be compared there

    It ends with a check of its own and prints what belongs into pipeline.yaml. Other firewall rules
    that let somebody in on that port are listed as warnings and left as they are. -WhatIf shows
    what would be changed.

.PARAMETER HostName
    Names and IP addresses under which the machine will be reached. The first one is printed as the
    endpoint.

.PARAMETER RemoteAddress
    Addresses, ranges or networks that may connect, as New-NetFirewallRule takes them, for example
    192.0.2.10 or 192.0.2.0/24.

.PARAMETER ValidDays
    How long a certificate made here is valid.

.PARAMETER RenewDays
    A certificate made here is replaced when it is valid for fewer days than this; fewer than
    -ValidDays.

.PARAMETER Renew
    Make a certificate even where a good one is. For a machine that was copied from another: both
    have the same private key until one has another.

.PARAMETER CertificateThumbprint
    Take this certificate of the machine's own store (LocalMachine\My) instead of making one.

.PARAMETER Port
    Where the HTTPS listener listens.

.PARAMETER CertificateFile
    Where the PEM file is written. None is for a certificate that an authority has signed.

.PARAMETER KeepHttp
    Leave the HTTP listener (port 5985) as it is.

.PARAMETER SkipTokenPolicy
    Leave LocalAccountTokenFilterPolicy as it is.

.EXAMPLE
    .\enable-winrm-https.ps1 -HostName lab1.example.org, 192.0.2.20 -RemoteAddress 192.0.2.10

    Where scripts are not allowed to run, type this first, in the same window:
    Set-ExecutionPolicy -Scope Process -ExecutionPolicy Bypass
#>
#Requires -Version 5.1
[CmdletBinding(SupportsShouldProcess = $true, ConfirmImpact = 'Medium')]
param(
    [Parameter(Mandatory = $true)]
    [ValidatePattern('^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$')]
    [string[]] $HostName,

    [Parameter(Mandatory = $true)]
    [ValidateNotNullOrEmpty()]
    [string[]] $RemoteAddress,

    [ValidateRange(1, 3650)]
    [int] $ValidDays = 825,

    [ValidateRange(0, 365)]
    [int] $RenewDays = 30,

    [switch] $Renew,

    [ValidatePattern('^[0-9A-Fa-f]{40}$')]
    [string] $CertificateThumbprint,

    [ValidateRange(1, 65535)]
    [int] $Port = 5986,

    [ValidateNotNullOrEmpty()]
    [string] $CertificateFile = (Join-Path -Path $env:ProgramData -ChildPath 'wcw-winrm.pem'),

    [switch] $KeepHttp,

    [switch] $SkipTokenPolicy
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$FriendlyName = 'windows-cuda-wheels WinRM'
$RuleName = 'windows-cuda-wheels-winrm-https'
$PolicyKey = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System'
$PolicyName = 'LocalAccountTokenFilterPolicy'
# Negotiate is NTLM or Kerberos, whichever both sides know; both seal what they carry.
$ServiceSettings = [ordered] @{
    'AllowUnencrypted'       = $false
    'Auth\Basic'             = $false
    'Auth\CredSSP'           = $false
    'Auth\Certificate'       = $false
    'Auth\Kerberos'          = $true
    'Auth\Negotiate'         = $true
    # Relaxed, the default, also lets in a sign-in that was made to another server.
    'Auth\CbtHardeningLevel' = 'Strict'
}
$SanObject = '2.5.29.17'
$ConstraintsObject = '2.5.29.19'
$ServerPurpose = '1.3.6.1.5.5.7.3.1'

function Assert-Administrator {
    [CmdletBinding()]
    param()
    $identity = [System.Security.Principal.WindowsIdentity]::GetCurrent()
    $principal = New-Object -TypeName System.Security.Principal.WindowsPrincipal -ArgumentList $identity
    if (-not $principal.IsInRole([System.Security.Principal.WindowsBuiltInRole]::Administrator)) {
        throw 'This must run as administrator: right-click PowerShell, "Run as administrator".'
    }
}

function ConvertTo-PlainName {
    # IP addresses in the one way .NET writes them (2001:db8::1 has many), names as they are.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [AllowEmptyString()]
        [string] $Name
    )
    $address = $null
    if ([System.Net.IPAddress]::TryParse($Name, [ref] $address)) {
        return $address.ToString()
    }
    return $Name
}

function Get-AlternativeName {
    # The subject alternative names as New-SelfSignedCertificate's -TextExtension wants them.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string[]] $Name
    )
    $parts = foreach ($one in $Name) {
        $address = $null
        if ([System.Net.IPAddress]::TryParse($one, [ref] $address)) {
            'IPAddress={0}' -f $one
        }
        else {
            'DNS={0}' -f $one
        }
    }
    return $parts -join '&'
}

function Test-CertificateName {
    # Whether the certificate names every one of the names.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2] $Certificate,

        [Parameter(Mandatory = $true)]
        [string[]] $Name
    )
    $extension = $Certificate.Extensions | Where-Object -FilterScript { $_.Oid.Value -eq $SanObject }
    if ($null -eq $extension) {
        return $false
    }
    # "DNS Name=a, IP Address=192.0.2.1" in words of the system's language: only values are compared.
    $named = @($extension.Format($false).Split(',') | ForEach-Object -Process {
            ConvertTo-PlainName -Name ($_.Split('=')[-1].Trim())
        })
    foreach ($one in $Name) {
        if ($named -notcontains (ConvertTo-PlainName -Name $one)) {
            return $false
        }
    }
    return $true
}

function Test-Authority {
    # Whether what trusts the certificate would trust others that are signed with its key.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2] $Certificate
    )
    $extension = $Certificate.Extensions | Where-Object -FilterScript { $_.Oid.Value -eq $ConstraintsObject }
    return $null -eq $extension -or $extension.CertificateAuthority
}

function Get-OwnCertificate {
    # The newest certificate that a former run made and that is still good; none, if there is none.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string[]] $Name,

        [Parameter(Mandatory = $true)]
        [int] $RenewDays
    )
    $until = [System.DateTime]::Now.AddDays($RenewDays)
    return Get-ChildItem -LiteralPath 'Cert:\LocalMachine\My' |
        Where-Object -FilterScript {
            $_.FriendlyName -eq $FriendlyName -and $_.HasPrivateKey -and $_.NotAfter -gt $until -and
            -not (Test-Authority -Certificate $_) -and (Test-CertificateName -Certificate $_ -Name $Name)
        } |
        Sort-Object -Property NotAfter -Descending |
        Select-Object -First 1
}

function Get-Listener {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [ValidateSet('HTTP', 'HTTPS')]
        [string] $Transport
    )
    return Get-ChildItem -Path 'WSMan:\localhost\Listener' |
        Where-Object -FilterScript { $_.Keys -contains ('Transport={0}' -f $Transport) }
}

function Get-ListenerValue {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Listener,

        [Parameter(Mandatory = $true)]
        [string] $Name
    )
    $found = Get-Item -Path ('WSMan:\localhost\Listener\{0}\{1}' -f $Listener, $Name)
    return ([string] $found.Value).Replace(' ', '')
}

function Get-PolicyValue {
    [CmdletBinding()]
    param()
    $found = Get-ItemProperty -LiteralPath $PolicyKey -ErrorAction SilentlyContinue
    if ($null -eq $found -or $found.PSObject.Properties.Name -notcontains $PolicyName) {
        return 0
    }
    return [int] $found.$PolicyName
}

function ConvertTo-Pem {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2] $Certificate
    )
    $encoded = [System.Convert]::ToBase64String($Certificate.RawData, [System.Base64FormattingOptions]::InsertLineBreaks)
    return "-----BEGIN CERTIFICATE-----`n" + $encoded.Replace("`r", '') + "`n-----END CERTIFICATE-----`n"
}

function Write-ProtectedFile {
    # A new file that administrators alone may change, from the call that makes it: where it lies
    # every user may make files, and change those that he made.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        [Parameter(Mandatory = $true)]
        [string] $Text
    )
    $bytes = [System.Text.Encoding]::ASCII.GetBytes($Text)
    $security = New-Object -TypeName System.Security.AccessControl.FileSecurity
    $security.SetSecurityDescriptorSddlForm('D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x1200a9;;;BU)')
    $mode = [System.IO.FileMode]::CreateNew
    $rights = [System.Security.AccessControl.FileSystemRights]::Write
    $share = [System.IO.FileShare]::None
    $options = [System.IO.FileOptions]::None
    # PowerShell 7 has the same under another name.
    if ($PSVersionTable.PSVersion.Major -lt 6) {
        $file = New-Object -TypeName System.IO.FileStream -ArgumentList @($Path, $mode, $rights, $share, 4096, $options, $security)
    }
    else {
        $place = New-Object -TypeName System.IO.FileInfo -ArgumentList $Path
        $file = [System.IO.FileSystemAclExtensions]::Create($place, $mode, $rights, $share, 4096, $options, $security)
    }
    try {
        $file.Write($bytes, 0, $bytes.Length)
    }
    finally {
        $file.Dispose()
    }
}

function Get-Fingerprint {
    # sha256 of the certificate, as "pin" has it.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2] $Certificate
    )
    $sha256 = [System.Security.Cryptography.SHA256]::Create()
    try {
        return [System.BitConverter]::ToString($sha256.ComputeHash($Certificate.RawData)).Replace('-', '').ToLowerInvariant()
    }
    finally {
        $sha256.Dispose()
    }
}

function Get-LastDay {
    # Until when it is valid; -f alone would take the calendar of the user's language.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Security.Cryptography.X509Certificates.X509Certificate2] $Certificate
    )
    return $Certificate.NotAfter.ToString('yyyy-MM-dd', [System.Globalization.CultureInfo]::InvariantCulture)
}

function Set-ServiceSetting {
    # A value of WSMan:\localhost\Service, set only where it differs.
    [CmdletBinding(SupportsShouldProcess = $true)]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Name,

        [Parameter(Mandatory = $true)]
        [object] $Value
    )
    $found = Get-Item -Path ('WSMan:\localhost\Service\{0}' -f $Name)
    if ([string] $found.Value -ne [string] $Value -and $PSCmdlet.ShouldProcess($Name, ('set to {0}' -f $Value))) {
        Set-Item -Path ('WSMan:\localhost\Service\{0}' -f $Name) -Value $Value -Force
    }
}

function Get-OtherRule {
    # Rules, of group policies too, that let somebody in to the port besides the one made here.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [int] $Port
    )
    # HTTP.sys listens for WinRM, in the kernel: a rule for another program does not open the port.
    $anybody = @('Any', 'System')
    $filters = Get-NetFirewallPortFilter -PolicyStore 'ActiveStore' -ErrorAction Stop | Where-Object -FilterScript {
        $_.Protocol -in @('TCP', '6', 'Any') -and (Test-PortRange -Range $_.LocalPort -Port $Port)
    }
    foreach ($filter in @($filters)) {
        $rule = $filter | Get-NetFirewallRule -ErrorAction Stop
        if ([string] $rule.Enabled -ne 'True' -or [string] $rule.Action -ne 'Allow' -or
            [string] $rule.Direction -ne 'Inbound' -or $rule.Name -eq $RuleName) {
            continue
        }
        if (($rule | Get-NetFirewallApplicationFilter -ErrorAction Stop).Program -notin $anybody -or
            ($rule | Get-NetFirewallServiceFilter -ErrorAction Stop).Service -ne 'Any') {
            continue
        }
        $address = ($rule | Get-NetFirewallAddressFilter -ErrorAction Stop).RemoteAddress -join ', '
        '{0} ("{1}"), for {2}' -f $rule.Name, $rule.DisplayName, $address
    }
}

function Test-PortRange {
    # Whether the port is among those of a rule: 'Any', '5986', '5985-5990', or several.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [AllowNull()]
        [AllowEmptyCollection()]
        [AllowEmptyString()]
        [string[]] $Range,

        [Parameter(Mandatory = $true)]
        [int] $Port
    )
    foreach ($one in $Range) {
        if ($one -eq 'Any') {
            return $true
        }
        if ($one -match '^(\d+)(?:-(\d+))?$') {
            $first = [int] $Matches[1]
            $last = $first
            if ($Matches.ContainsKey(2)) {
                $last = [int] $Matches[2]
            }
            if ($Port -ge $first -and $Port -le $last) {
                return $true
            }
        }
    }
    return $false
}

function Get-AnswerProblem {
    # Connects as a client would and asks without signing in: WinRM answers with status 401.
    # (Test-WSMan cannot trust a certificate that no authority of this machine has signed.)
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [int] $Port,

        [Parameter(Mandatory = $true)]
        [string] $Thumbprint
    )
    $trustAll = [System.Net.Security.RemoteCertificateValidationCallback] { $true }
    $client = New-Object -TypeName System.Net.Sockets.TcpClient
    try {
        $client.ReceiveTimeout = 30000
        $client.SendTimeout = 30000
        $client.Connect('localhost', $Port)
        $tls = New-Object -TypeName System.Net.Security.SslStream -ArgumentList @($client.GetStream(), $false, $trustAll)
        # What .NET offers by itself here is TLS 1.0, which new and hardened machines refuse.
        $tls.AuthenticateAsClient('localhost', $null, [System.Security.Authentication.SslProtocols]::Tls12, $false)
        $found = $tls.RemoteCertificate.GetCertHashString()
        if ($found -ne $Thumbprint) {
            return 'port {0} shows certificate {1}, expected {2}' -f $Port, $found, $Thumbprint
        }
        $request = "POST /wsman HTTP/1.1`r`nHost: localhost`r`nContent-Length: 0`r`nConnection: close`r`n`r`n"
        $bytes = [System.Text.Encoding]::ASCII.GetBytes($request)
        $tls.Write($bytes, 0, $bytes.Length)
        $tls.Flush()
        $reader = New-Object -TypeName System.IO.StreamReader -ArgumentList $tls
        $status = $reader.ReadLine()
        if ($status -notlike 'HTTP/1.1 401*') {
            return 'port {0} answers "{1}", WinRM would answer "HTTP/1.1 401"' -f $Port, $status
        }
        return ''
    }
    finally {
        $client.Close()
    }
}

# -- The service ---------------------------------------------------------------------------------

Assert-Administrator
if ($RenewDays -ge $ValidDays) {
    throw '-RenewDays must be less than -ValidDays: the certificate would be replaced each time.'
}
# Where this session is, not where the process was started.
$CertificateFile = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($CertificateFile)

$service = Get-Service -Name 'WinRM'
$delayed = Get-ItemProperty -LiteralPath 'HKLM:\SYSTEM\CurrentControlSet\Services\WinRM'
$isDelayed = $delayed.Start -eq 2 -and
    $delayed.PSObject.Properties.Name -contains 'DelayedAutoStart' -and $delayed.DelayedAutoStart -eq 1
if (-not $isDelayed -and $PSCmdlet.ShouldProcess('WinRM', 'start automatically, delayed')) {
    # Set-Service knows delayed start from PowerShell 6 on only.
    $control = Join-Path -Path ([System.Environment]::SystemDirectory) -ChildPath 'sc.exe'
    $null = & $control 'config' 'WinRM' 'start=' 'delayed-auto'
    if ($LASTEXITCODE -ne 0) {
        throw ('sc.exe config WinRM ended with exit code {0}' -f $LASTEXITCODE)
    }
}
if ($service.Status -ne [System.ServiceProcess.ServiceControllerStatus]::Running) {
    if (-not $PSCmdlet.ShouldProcess('WinRM', 'start the service')) {
        Write-Warning -Message 'WinRM is not running: what else would be changed is only known when it is.'
        return
    }
    Start-Service -Name 'WinRM'
}

# -- The certificate -----------------------------------------------------------------------------

$certificate = $null
if ($CertificateThumbprint) {
    $certificate = Get-Item -LiteralPath ('Cert:\LocalMachine\My\{0}' -f $CertificateThumbprint.ToUpperInvariant())
    if (-not $certificate.HasPrivateKey) {
        throw ('The private key of certificate {0} is not on this machine.' -f $CertificateThumbprint)
    }
    if ($certificate.NotAfter -le [System.DateTime]::Now) {
        throw ('Certificate {0} expired on {1}.' -f $CertificateThumbprint, (Get-LastDay -Certificate $certificate))
    }
}
else {
    if (-not $Renew) {
        $certificate = Get-OwnCertificate -Name $HostName -RenewDays $RenewDays
    }
    if ($null -eq $certificate -and $PSCmdlet.ShouldProcess('Cert:\LocalMachine\My', ('make a certificate for {0}' -f ($HostName -join ', ')))) {
        $wanted = @{
            Type              = 'Custom'
            Subject           = 'CN={0}' -f $HostName[0]
            FriendlyName      = $FriendlyName
            CertStoreLocation = 'Cert:\LocalMachine\My'
            KeyAlgorithm      = 'RSA'
            KeyLength         = 3072
            HashAlgorithm     = 'SHA256'
            KeyExportPolicy   = 'NonExportable'
            KeyUsage          = @('DigitalSignature', 'KeyEncipherment')
            NotAfter          = [System.DateTime]::Now.AddDays($ValidDays)
            TextExtension     = @(
                ('{0}={{text}}{1}' -f $SanObject, (Get-AlternativeName -Name $HostName)),
                ('2.5.29.37={{text}}{0}' -f $ServerPurpose),
                # A client can be given this very file to trust all the same; what is signed with
                # its key, for the name of another machine, it must not trust.
                ('{0}={{critical}}{{text}}ca=FALSE' -f $ConstraintsObject)
            )
        }
        $certificate = New-SelfSignedCertificate @wanted
    }
}
if ($null -eq $certificate -and -not $WhatIfPreference) {
    throw 'There is no certificate, so there can be no listener.'
}

# -- The HTTPS listener --------------------------------------------------------------------------

$https = @(Get-Listener -Transport 'HTTPS')
foreach ($listener in $https) {
    $bound = Get-ListenerValue -Listener $listener.Name -Name 'CertificateThumbprint'
    $isRight = $null -ne $certificate -and $bound -eq $certificate.Thumbprint -and
        (Get-ListenerValue -Listener $listener.Name -Name 'Port') -eq [string] $Port -and
        (Get-ListenerValue -Listener $listener.Name -Name 'Address') -eq '*' -and
        (Get-ListenerValue -Listener $listener.Name -Name 'Enabled') -eq 'true'
    if (-not $isRight -and $PSCmdlet.ShouldProcess($listener.Name, 'remove the HTTPS listener with another certificate, port or address')) {
        Remove-Item -Path ('WSMan:\localhost\Listener\{0}' -f $listener.Name) -Recurse -Force
    }
}
if (@(Get-Listener -Transport 'HTTPS').Count -eq 0 -and $PSCmdlet.ShouldProcess(('port {0}' -f $Port), 'make an HTTPS listener')) {
    # No host name: WinRM would compare it with the certificate's subject, which has one name only.
    $settings = @{
        Path                  = 'WSMan:\localhost\Listener'
        Address               = '*'
        Transport             = 'HTTPS'
        Port                  = $Port
        CertificateThumbPrint = $certificate.Thumbprint
        Enabled               = $true
        Force                 = $true
    }
    $null = New-Item @settings
}

# -- Who may sign in, and how --------------------------------------------------------------------

# Windows refuses some of them while any network is Public, those of Hyper-V and Docker too: error
# 2150859113, https://github.com/PowerShell/PowerShell/issues/13654. All else is done first.
$refused = @{}
foreach ($name in $ServiceSettings.Keys) {
    try {
        Set-ServiceSetting -Name $name -Value $ServiceSettings[$name]
    }
    catch {
        $public = @(Get-NetConnectionProfile | Where-Object -FilterScript { [string] $_.NetworkCategory -eq 'Public' })
        $hint = if ($public.Count -gt 0) {
            '. Public are: {0}; Set-NetConnectionProfile -InterfaceIndex {1} -NetworkCategory Private changes that' -f
            (($public | ForEach-Object -Process { $_.Name }) -join ', '), $public[0].InterfaceIndex
        }
        $refused[$name] = $_.Exception.Message + $hint
    }
}

if (-not $SkipTokenPolicy -and (Get-PolicyValue) -ne 1 -and $PSCmdlet.ShouldProcess($PolicyName, 'set to 1: local administrators keep their rights over the network')) {
    $null = New-ItemProperty -LiteralPath $PolicyKey -Name $PolicyName -PropertyType DWord -Value 1 -Force
}

# -- The firewall --------------------------------------------------------------------------------

# Written each time: Windows shows networks its own way (192.0.2.0/255.255.255.0), so that comparing
# would find differences where there are none.
if ($PSCmdlet.ShouldProcess($RuleName, ('let {0} connect to port {1}' -f ($RemoteAddress -join ', '), $Port))) {
    $firewall = @{
        Name          = $RuleName
        Direction     = 'Inbound'
        Action        = 'Allow'
        Protocol      = 'TCP'
        LocalPort     = $Port
        RemoteAddress = $RemoteAddress
        Profile       = 'Any'
        Enabled       = 'True'
        # These are functions of a module: they do not see this script's preference.
        ErrorAction   = 'Stop'
    }
    if ($null -eq (Get-NetFirewallRule -Name $RuleName -ErrorAction SilentlyContinue)) {
        $null = New-NetFirewallRule -DisplayName 'WinRM over HTTPS for windows-cuda-wheels' @firewall
    }
    else {
        Set-NetFirewallRule @firewall
    }
}

# -- The public part of the certificate ----------------------------------------------------------

# One that an authority has signed is of no use as something to trust: the authority is.
$isOwnAuthority = $null -ne $certificate -and $certificate.Subject -eq $certificate.Issuer
if ($isOwnAuthority) {
    if ($PSCmdlet.ShouldProcess($CertificateFile, 'write the certificate, without its key')) {
        # Written each time: who made the file that is there may change it afterwards.
        [System.IO.File]::Delete($CertificateFile)
        Write-ProtectedFile -Path $CertificateFile -Text (ConvertTo-Pem -Certificate $certificate)
    }
}

# -- Its own check -------------------------------------------------------------------------------

$wrong = @()
if (-not $WhatIfPreference) {
    $listeners = @(Get-Listener -Transport 'HTTPS')
    if ($listeners.Count -ne 1) {
        $wrong += 'there are {0} HTTPS listeners, expected one' -f $listeners.Count
    }
    try {
        $complaint = Get-AnswerProblem -Port $Port -Thumbprint $certificate.Thumbprint
        if ($complaint) {
            $wrong += $complaint
        }
    }
    catch {
        $wrong += 'nothing answers on port {0}: {1}' -f $Port, $_.Exception.Message
    }
    if ($wrong.Count -gt 0) {
        throw ('WinRM over HTTPS is not ready, the HTTP listener is left as it is: {0}' -f ($wrong -join '; '))
    }
}

# -- The HTTP listener, now that there is another way in ------------------------------------------

if (-not $KeepHttp) {
    foreach ($listener in @(Get-Listener -Transport 'HTTP')) {
        if ($PSCmdlet.ShouldProcess($listener.Name, 'remove the HTTP listener')) {
            Remove-Item -Path ('WSMan:\localhost\Listener\{0}' -f $listener.Name) -Recurse -Force
        }
    }
}
if ($WhatIfPreference) {
    return
}
if (-not $KeepHttp -and @(Get-Listener -Transport 'HTTP').Count -gt 0) {
    $wrong += 'there still is an HTTP listener: a group policy may set it'
}
foreach ($name in $ServiceSettings.Keys) {
    $value = [string] (Get-Item -Path ('WSMan:\localhost\Service\{0}' -f $name)).Value
    if ($value -ne [string] $ServiceSettings[$name]) {
        $why = if ($refused.ContainsKey($name)) { $refused[$name] } else { 'a group policy may set it' }
        $wrong += '{0} is {1}: {2}' -f $name, $value, $why
    }
}
if (-not $SkipTokenPolicy -and (Get-PolicyValue) -ne 1) {
    $wrong += '{0} is not 1' -f $PolicyName
}
if ($wrong.Count -gt 0) {
    throw ('WinRM over HTTPS is not ready: {0}' -f ($wrong -join '; '))
}

$authority = $HostName[0]
if ($authority.Contains(':')) {
    $authority = '[{0}]' -f $authority
}
Write-Output -InputObject ('The certificate is valid until {0}.' -f (Get-LastDay -Certificate $certificate))
foreach ($rule in @(Get-OtherRule -Port $Port)) {
    Write-Warning -Message ('Another firewall rule lets in to port {0}: {1}. Unless it is meant to: Disable-NetFirewallRule -Name NAME' -f $Port, $rule)
}
if ($isOwnAuthority -and (Test-Authority -Certificate $certificate)) {
    Write-Warning -Message ('Whoever has the key of certificate {0} can sign certificates that those who trust it trust for any name. Without -CertificateThumbprint one is made that cannot.' -f $certificate.Thumbprint)
}
if ($isOwnAuthority) {
    Write-Output -InputObject ('Copy {0} to the machine that builds, next to its pipeline.yaml.' -f $CertificateFile)
    Write-Output -InputObject ('Compare there, with openssl x509 -noout -fingerprint -sha256: {0}' -f (Get-Fingerprint -Certificate $certificate))
}
Write-Output -InputObject 'Put this into that file, under the host:'
Write-Output -InputObject ('    endpoint: https://{0}:{1}/wsman' -f $authority, $Port)
if ($isOwnAuthority) {
    Write-Output -InputObject ('    ca: {0}' -f [System.IO.Path]::GetFileName($CertificateFile))
}
else {
    Write-Output -InputObject ('and "ca:", a PEM file of the authority {0}, unless that machine trusts it already.' -f $certificate.Issuer)
}
