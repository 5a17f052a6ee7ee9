<#
.SYNOPSIS
    Makes the local administrator "builder" on a runner of GitHub's, which is thrown away after the job.

.PARAMETER Path
    Where its random password is written, for the step that signs in with it.
#>
#Requires -Version 5.1
[CmdletBinding(SupportsShouldProcess = $true)]
param(
    [Parameter(Mandatory = $true)]
    [ValidateNotNullOrEmpty()]
    [string] $Path
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

# Four groups, as Windows' rules for passwords want them, and 128 random bits.
$bytes = New-Object -TypeName byte[] -ArgumentList 16
$random = [System.Security.Cryptography.RandomNumberGenerator]::Create()
$random.GetBytes($bytes)
$random.Dispose()
$made = 'aA1-{0}' -f [System.BitConverter]::ToString($bytes)
$secure = New-Object -TypeName System.Security.SecureString
foreach ($letter in $made.ToCharArray()) {
    $secure.AppendChar($letter)
}
if ($PSCmdlet.ShouldProcess('builder', 'make a local administrator')) {
    $null = New-LocalUser -Name 'builder' -Password $secure -PasswordNeverExpires
    Add-LocalGroupMember -SID 'S-1-5-32-544' -Member 'builder'
    [System.IO.File]::WriteAllText($Path, $made)
}
