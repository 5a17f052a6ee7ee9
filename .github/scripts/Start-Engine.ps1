<#
.SYNOPSIS
    Starts Docker's service on a runner of GitHub's, where it may have lost a race while booting.

.DESCRIPTION
    https://github.com/actions/runner-images/issues/13729
#>
#Requires -Version 5.1
[CmdletBinding()]
param(
    [ValidateRange(1, 600)]
    [int] $WaitSeconds = 60
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$until = [System.DateTime]::UtcNow.AddSeconds($WaitSeconds)
while ((Get-Service -Name 'docker').Status -ne 'Running') {
    if ([System.DateTime]::UtcNow -gt $until) {
        throw ('Docker is not running after {0} s' -f $WaitSeconds)
    }
    # One that is stopping cannot be started yet.
    Start-Service -Name 'docker' -ErrorAction SilentlyContinue
    Start-Sleep -Seconds 1
}
