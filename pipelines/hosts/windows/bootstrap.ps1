<#
Puts a Python on a bare Windows. The only PowerShell that the pipeline runs on a host; works on
Windows PowerShell 5.1 and on PowerShell 7.

Standard input, after what the loader took: the payload, a zip file, as lines of base64. Standard
output: lines of 'wcw-bootstrap ' and a JSON object in ASCII. Its key 'state' is
  need        the payload is wanted now; without its size, that Python is not there
  present     this very Python is there and runs: nothing was done
  installed   it was put there and runs
  failed      it was not; 'kind' and 'message' say why, and what was there before is untouched

No program is started with this process' own input: a child that looks at a pipe while somebody
reads from it waits until something comes (https://github.com/python/cpython/issues/78961 is one
of its forms).
#>
[CmdletBinding()]
param(
    # Directory that is to hold python.exe.
    [Parameter(Mandatory = $true)]
    [ValidatePattern('^[A-Za-z]:\\[^\\]')]
    [string] $Target,

    # Names the content; what the marker file of a finished installation holds.
    [Parameter(Mandatory = $true)]
    [ValidatePattern('^[0-9a-f]{64}$')]
    [string] $Marker,

    # The zip file's sha256.
    [ValidatePattern('^[0-9a-f]{64}$')]
    [string] $Digest,

    # Bytes of the zip file; without it nothing is sent or changed.
    [ValidateRange(1, 1073741824)]
    [long] $Size,

    # Bytes that its files take once unpacked.
    [ValidateRange(1, 4294967296)]
    [long] $Unpacked,

    # Put it there even where it seems to be there: what a build changed in it does not show.
    [bool] $Replace = $false
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

# In a finished installation: what it was made of.
$SealName = 'wcw-python.txt'

function Write-Answer {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [hashtable] $Answer
    )
    $text = ConvertTo-Json -InputObject $Answer -Compress
    $ascii = New-Object -TypeName System.Text.StringBuilder
    foreach ($character in $text.ToCharArray()) {
        $code = [int] $character
        if ($code -ge 32 -and $code -le 126) {
            $null = $ascii.Append($character)
        }
        elseif ([char]::IsSurrogate($character)) {
            # Names of files may hold half a pair, which no JSON parser takes.
            $null = $ascii.Append('?')
        }
        else {
            $null = $ascii.Append(('\u{0:x4}' -f $code))
        }
    }
    [System.Console]::Out.WriteLine('wcw-bootstrap ' + $ascii.ToString())
    [System.Console]::Out.Flush()
}

function Get-FailureKind {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Exception] $Problem
    )
    $code = $Problem.HResult -band 0xFFFF
    if ($Problem -is [System.IO.InvalidDataException] -or $Problem -is [System.FormatException]) {
        return 'damaged'
    }
    if ($Problem -is [System.UnauthorizedAccessException]) {
        return 'denied'
    }
    if ($Problem -is [System.Security.SecurityException]) {
        return 'unsafe'
    }
    if ($Problem -is [System.IO.IOException]) {
        # ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL; ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION
        if (@(39, 112) -contains $code) {
            return 'disk-full'
        }
        if (@(5, 32) -contains $code) {
            return 'busy'
        }
    }
    return 'other'
}

function Invoke-Program {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        [Parameter(Mandatory = $true)]
        [string] $Arguments
    )
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo
    $start.FileName = $Path
    $start.Arguments = $Arguments
    $start.UseShellExecute = $false
    $start.CreateNoWindow = $true
    $start.RedirectStandardInput = $true
    $start.RedirectStandardOutput = $true
    $start.RedirectStandardError = $true
    $process = [System.Diagnostics.Process]::Start($start)
    try {
        $process.StandardInput.Close()
        $output = $process.StandardOutput.ReadToEndAsync()
        $complaint = $process.StandardError.ReadToEndAsync()
        if (-not $process.WaitForExit(120000)) {
            $process.Kill()
            throw ('{0} did not end within 120 s' -f $Path)
        }
        if ($process.ExitCode -ne 0) {
            throw ('{0} ended with exit code {1}: {2}' -f $Path, $process.ExitCode, $complaint.Result.Trim())
        }
        return $output.Result.Trim()
    }
    finally {
        $process.Dispose()
    }
}

function Get-PythonFact {
    # What python.exe says of itself; it must load extension modules and their DLLs, too.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path
    )
    $said = Invoke-Program -Path $Path -Arguments '-I -c "import ctypes, hashlib, socket, sys; print(sys.version.split()[0], ctypes.sizeof(ctypes.c_void_p) * 8)"'
    $words = @($said.Split(' '))
    if ($words.Count -ne 2) {
        throw ('{0} answered: {1}' -f $Path, $said)
    }
    return @{ python = $Path; version = $words[0]; bits = [int] $words[1] }
}

function Get-InstalledFact {
    # What the Python in that directory says of itself if it is the wanted one and runs.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        [Parameter(Mandatory = $true)]
        [string] $Marker
    )
    $seal = Join-Path -Path $Path -ChildPath $SealName
    if (-not (Test-Path -LiteralPath $seal -PathType Leaf)) {
        return
    }
    if ([System.IO.File]::ReadAllText($seal).Trim() -ne $Marker) {
        return
    }
    try {
        return Get-PythonFact -Path (Join-Path -Path $Path -ChildPath 'python.exe')
    }
    catch {
        # It no longer runs: it is replaced.
        Write-Verbose -Message $_.ToString()
    }
}

function Test-Foreign {
    # Whether something is there that a former run did not put there.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path
    )
    if (-not (Test-Path -LiteralPath $Path)) {
        return $false
    }
    if (Test-Path -LiteralPath (Join-Path -Path $Path -ChildPath $SealName) -PathType Leaf) {
        return $false
    }
    return @(Get-ChildItem -LiteralPath $Path -Force).Count -gt 0
}

function Get-Obstacle {
    # Why no directory can be made there, if so: the kind of failure and what to say of it.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path
    )
    $drive = [System.IO.Path]::GetPathRoot($Path)
    if (-not [System.IO.Directory]::Exists($drive)) {
        return @{ kind = 'no-drive'; message = ('there is no drive {0}' -f $drive) }
    }
    while ($Path -ne $drive) {
        if ([System.IO.File]::Exists($Path)) {
            return @{ kind = 'file-in-the-way'; message = ('{0} is a file' -f $Path) }
        }
        $Path = [System.IO.Path]::GetDirectoryName($Path)
    }
}

function Invoke-Patiently {
    # Virus scanners hold new files open for a moment.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [scriptblock] $Action
    )
    $attempt = 0
    while ($true) {
        try {
            & $Action
            return
        }
        catch {
            $attempt += 1
            if ($attempt -ge 20) {
                throw
            }
            Start-Sleep -Milliseconds 250
        }
    }
}

function Move-Directory {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Source,

        [Parameter(Mandatory = $true)]
        [string] $Destination
    )
    Invoke-Patiently -Action { [System.IO.Directory]::Move($Source, $Destination) }
}

function Remove-Path {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path
    )
    Invoke-Patiently -Action {
        if (Test-Path -LiteralPath $Path) {
            Remove-Item -LiteralPath $Path -Recurse -Force
        }
    }
}

function Remove-Litter {
    # What is in use stays for the next time.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string[]] $Paths
    )
    foreach ($path in $Paths) {
        if (Test-Path -LiteralPath $path) {
            Remove-Item -LiteralPath $path -Recurse -Force -ErrorAction SilentlyContinue
        }
    }
}

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

function Assert-Space {
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        [Parameter(Mandatory = $true)]
        [long] $Bytes
    )
    $drive = New-Object -TypeName System.IO.DriveInfo -ArgumentList ([System.IO.Path]::GetPathRoot($Path))
    if ($drive.AvailableFreeSpace -lt $Bytes) {
        $message = '{0} has {1} bytes free, {2} are needed' -f $drive.Name, $drive.AvailableFreeSpace, $Bytes
        # HRESULT_FROM_WIN32(ERROR_DISK_FULL)
        throw (New-Object -TypeName System.IO.IOException -ArgumentList @($message, -2147024784))
    }
}

function Save-Payload {
    # Standard input to a file, bounded by the size that was announced; then the proof.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Path,

        [Parameter(Mandatory = $true)]
        [long] $Size,

        [Parameter(Mandatory = $true)]
        [string] $Digest
    )
    $received = [long] 0
    $file = [System.IO.File]::Open($Path, [System.IO.FileMode]::Create, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::None)
    try {
        while ($received -lt $Size) {
            $line = [System.Console]::In.ReadLine()
            if ($null -eq $line) {
                throw (New-Object -TypeName System.IO.InvalidDataException -ArgumentList ('the input ended after {0} of {1} bytes' -f $received, $Size))
            }
            $bytes = [System.Convert]::FromBase64String($line)
            $received += $bytes.Length
            if ($received -gt $Size) {
                throw (New-Object -TypeName System.IO.InvalidDataException -ArgumentList ('received more than {0} bytes' -f $Size))
            }
            $file.Write($bytes, 0, $bytes.Length)
        }
        $file.Flush($true)
        $file.Position = 0
        $algorithm = [System.Security.Cryptography.SHA256]::Create()
        try {
            $found = [System.BitConverter]::ToString($algorithm.ComputeHash($file)).Replace('-', '').ToLowerInvariant()
        }
        finally {
            $algorithm.Dispose()
        }
        if ($found -ne $Digest) {
            throw (New-Object -TypeName System.IO.InvalidDataException -ArgumentList ('the received data has sha256 {0}, expected {1}' -f $found, $Digest))
        }
    }
    finally {
        $file.Dispose()
    }
}

$parent = [System.IO.Path]::GetDirectoryName($Target)
# A directory of its own, for that of the target may be the root of a drive, where users write.
$work = $Target + '.wcw-new'
$part = $work + '\python.zip'
$fresh = $work + '\python'
$old = $Target + '.wcw-old'
$lock = $null
try {
    # First: Join-Path ends with an error where there is no such drive.
    $obstacle = Get-Obstacle -Path $parent
    if ($null -ne $obstacle) {
        Write-Answer -Answer ($obstacle + @{ state = 'failed' })
        return
    }
    # Before anything in it is read or started.
    New-ProtectedDirectory -Path $Target -OnlyLook
    $fact = $null
    if (-not $Replace) {
        $fact = Get-InstalledFact -Path $Target -Marker $Marker
    }
    if ($null -ne $fact) {
        Write-Answer -Answer ($fact + @{ state = 'present' })
        return
    }
    if ($Size -eq 0) {
        Write-Answer -Answer @{ state = 'need' }
        return
    }
    New-ProtectedDirectory -Path $parent
    # Closed, and thereby removed, by Windows when this process dies; two at a time would mix.
    $lock = New-Object -TypeName System.IO.FileStream -ArgumentList @(
        ($Target + '.wcw-lock'), [System.IO.FileMode]::OpenOrCreate, [System.IO.FileAccess]::ReadWrite,
        [System.IO.FileShare]::None, 4096, [System.IO.FileOptions]::DeleteOnClose
    )
    # Again, now that it cannot change any more: another controller may have been quicker.
    if (-not $Replace) {
        $fact = Get-InstalledFact -Path $Target -Marker $Marker
    }
    if ($null -ne $fact) {
        Write-Answer -Answer ($fact + @{ state = 'present' })
        return
    }
    if (Test-Foreign -Path $Target) {
        Write-Answer -Answer @{ state = 'failed'; kind = 'foreign'; message = ('{0} contains something else' -f $Target) }
        return
    }
    Remove-Path -Path $work
    Assert-Space -Path $Target -Bytes ($Size + $Unpacked)
    Write-Answer -Answer @{ state = 'need' }
    New-ProtectedDirectory -Path $fresh
    Save-Payload -Path $part -Size $Size -Digest $Digest
    Add-Type -AssemblyName 'System.IO.Compression.FileSystem'
    [System.IO.Compression.ZipFile]::ExtractToDirectory($part, $fresh)
    $null = Get-PythonFact -Path (Join-Path -Path $fresh -ChildPath 'python.exe')
    [System.IO.File]::WriteAllText((Join-Path -Path $fresh -ChildPath $SealName), $Marker)
    $there = Test-Path -LiteralPath $Target
    $moved = $false
    if ($there) {
        Remove-Path -Path $old
        Move-Directory -Source $Target -Destination $old
    }
    try {
        Move-Directory -Source $fresh -Destination $Target
        $moved = $true
        $fact = Get-PythonFact -Path (Join-Path -Path $Target -ChildPath 'python.exe')
    }
    catch {
        if ($moved) {
            Move-Directory -Source $Target -Destination $fresh
        }
        if ($there) {
            Move-Directory -Source $old -Destination $Target
        }
        throw
    }
    # Before the answer: whoever waits for it may end this process.
    Remove-Litter -Paths @($work, $old)
    Write-Answer -Answer ($fact + @{ state = 'installed' })
}
catch {
    $problem = $_.Exception
    while ($null -ne $problem.InnerException) {
        $problem = $problem.InnerException
    }
    $message = $problem.Message
    Write-Answer -Answer @{
        state   = 'failed'
        kind    = Get-FailureKind -Problem $problem
        message = $message.Substring(0, [System.Math]::Min(600, $message.Length))
    }
}
finally {
    if ($null -ne $lock) {
        $litter = @($work)
        if (Test-Path -LiteralPath $Target) {
            $litter += $old
        }
        Remove-Litter -Paths $litter
        $lock.Dispose()
    }
}
