# Makes directories that only administrators may change, or refuses those that others may have filled.
# The functions are those of pipelines/hosts/windows/bootstrap.ps1; a test compares them.
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)] [string[]] $Paths,
    [bool] $Readable = $false
)

function Get-TrustedSid {
    # Who may own and change a directory of ours: this account, SYSTEM, Administrators,
    # TrustedInstaller, and ContainerAdministrator, whom only the inside of a container knows.
    [CmdletBinding()]
    [OutputType([string])]
    param()
    [System.Security.Principal.WindowsIdentity]::GetCurrent().User.Value
    'S-1-5-18'
    'S-1-5-32-544'
    'S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464'
    'S-1-5-93-2-1'
}

function Assert-Protected {
    # Throws if others may have put there what is in that directory. The rights that count are those
    # of pipelines/remote/protected_dirs.py; of an entry that is only inherited, too.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path
    )
    $trusted = @(Get-TrustedSid)
    $sid = [System.Security.Principal.SecurityIdentifier]
    $security = New-Object -TypeName System.Security.AccessControl.DirectorySecurity -ArgumentList @($Path, 'Owner, Access')
    $owner = $security.GetOwner($sid).Value
    $rules = @($security.GetAccessRules($true, $true, $sid))
    # CREATOR OWNER and OWNER RIGHTS stand for whoever owns what is there.
    $others = @($rules | Where-Object -FilterScript {
            $_.AccessControlType -eq [System.Security.AccessControl.AccessControlType]::Allow -and
            ([int] $_.FileSystemRights -band 0x500D0156) -ne 0 -and
            ($trusted + @('S-1-3-0', 'S-1-3-4')) -notcontains $_.IdentityReference.Value
        })
    $link = ([System.IO.File]::GetAttributes($Path) -band [System.IO.FileAttributes]::ReparsePoint) -ne 0
    if ($link -or $trusted -notcontains $owner -or $others.Count -gt 0) {
        $shown = @($rules | ForEach-Object -Process { '{0} 0x{1:x}' -f $_.IdentityReference.Value, [int] $_.FileSystemRights })
        $message = '{0} is not safe to use: other users may have put files there. Found owner {1}, link: {2}, {3}'
        throw (New-Object -TypeName System.Security.SecurityException -ArgumentList ($message -f $Path, $owner, $link, ($shown -join ', ')))
    }
}

function New-ProtectedDirectory {
    # Makes the directory and those above it, each in one step with its access list: below the root
    # of a drive every user may make directories, and change what is in new ones.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        # Make nothing, look at what is there.
        [switch] $OnlyLook,

        # Other users may read what is in new ones.
        [switch] $Readable
    )
    $above = [System.IO.Path]::GetDirectoryName($Path)
    if ($null -eq $above) {
        return
    }
    New-ProtectedDirectory -Path $above -OnlyLook:$OnlyLook -Readable:$Readable
    if (-not $OnlyLook) {
        $identity = [System.Security.Principal.WindowsIdentity]::GetCurrent()
        $principal = New-Object -TypeName System.Security.Principal.WindowsPrincipal -ArgumentList $identity
        $access = 'D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)'
        if (-not $principal.IsInRole([System.Security.Principal.WindowsBuiltInRole]::Administrator)) {
            $access += '(A;OICI;FA;;;{0})' -f $identity.User.Value
        }
        if ($Readable) {
            $access += '(A;OICI;0x1200a9;;;BU)'
        }
        $security = New-Object -TypeName System.Security.AccessControl.DirectorySecurity
        $security.SetSecurityDescriptorSddlForm($access)
        # Harmless when it is there. PowerShell 7 has the same under another name.
        if ($PSVersionTable.PSVersion.Major -lt 6) {
            $null = [System.IO.Directory]::CreateDirectory($Path, $security)
        }
        else {
            $null = [System.IO.FileSystemAclExtensions]::CreateDirectory($security, $Path)
        }
    }
    if ([System.IO.Directory]::Exists($Path)) {
        Assert-Protected -Path $Path
    }
}

$Ansible.Changed = $false
foreach ($path in $Paths) {
    $make = -not (Test-Path -LiteralPath $path)
    $Ansible.Changed = $Ansible.Changed -or $make
    $make = $make -and $PSCmdlet.ShouldProcess($path, 'make the directory')
    New-ProtectedDirectory -Path $path -OnlyLook:(-not $make) -Readable:$Readable
}
