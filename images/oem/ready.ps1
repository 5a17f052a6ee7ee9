<#
.SYNOPSIS
    At each start of a machine made of a golden disk: certificate, account, WinRM, a word on COM1.

.DESCRIPTION
    Run as SYSTEM by a task that golden.ps1 has registered. The first time it makes a certificate,
    for the golden disk's has the same key in every machine; waits for the user and password that
    the controller has put into the share \\host.lan\Data, makes that account, an administrator, and
    removes the file. Evidence: F, run under Wine only.
#>
#Requires -Version 5.1
[CmdletBinding()]
param(
    [ValidateRange(1, 3600)]
    [int] $WaitSeconds = 300
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$Here = Split-Path -Parent $MyInvocation.MyCommand.Path
# SYSTEM signs in there as the computer, whom that samba takes for a guest; the answer files of
# dockur/windows allow guests, without signatures. https://github.com/dockur/windows/blob/master/src/samba.sh
$SecretFile = '\\host.lan\Data\winrm'
$Made = Join-Path -Path $Here -ChildPath 'account.txt'

. (Join-Path -Path $Here -ChildPath 'serial.ps1')

function New-Account {
    # Of the file's one line, USER:PASSWORD.
    [CmdletBinding(SupportsShouldProcess = $true)]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Line
    )
    $user, $rest = $Line.Trim().Split([char[]] @(':'), 2)
    if (-not $rest) {
        throw 'the file with the account does not say USER:PASSWORD'
    }
    $secret = New-Object -TypeName System.Security.SecureString
    foreach ($letter in $rest.ToCharArray()) {
        $secret.AppendChar($letter)
    }
    if ($PSCmdlet.ShouldProcess($user, 'make an administrator')) {
        $null = New-LocalUser -Name $user -Password $secret -PasswordNeverExpires -AccountNeverExpires
        # By its number: its name is another one in each language.
        Add-LocalGroupMember -SID 'S-1-5-32-544' -Member $user
        [System.IO.File]::WriteAllText($Made, $user)
    }
}

try {
    # Before anybody can sign in: a machine without an account has not got a key of its own yet.
    if (-not (Test-Path -LiteralPath $Made -PathType Leaf)) {
        $null = & (Join-Path -Path $Here -ChildPath 'enable-winrm-https.ps1') -HostName 'localhost', '127.0.0.1' -RemoteAddress 'Any' -Renew
    }
    $until = [System.DateTime]::UtcNow.AddSeconds($WaitSeconds)
    while (-not (Test-Path -LiteralPath $Made -PathType Leaf)) {
        if (Test-Path -LiteralPath $SecretFile -PathType Leaf) {
            New-Account -Line ([System.IO.File]::ReadAllText($SecretFile))
            Remove-Item -LiteralPath $SecretFile -Force
        }
        elseif ([System.DateTime]::UtcNow -gt $until) {
            throw ('there is no {0}' -f $SecretFile)
        }
        else {
            Start-Sleep -Seconds 1
        }
    }
    # Its start is delayed by two minutes on its own.
    Start-Service -Name 'WinRM'
    Write-Com1 -Text ('WCW-READY {0}' -f (Get-WinRMPin))
}
catch {
    Write-Com1 -Text ('WCW-FAILED {0}' -f $_.Exception.Message)
    throw
}
