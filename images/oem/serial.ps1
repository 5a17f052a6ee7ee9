<#
.SYNOPSIS
    What golden.ps1 and ready.ps1 share: the way to COM1, and what is said there.
#>
#Requires -Version 5.1
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

function Write-Com1 {
    # A line on the serial port, which is the log of the container that the machine runs in.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [string] $Text
    )
    $port = New-Object -TypeName System.IO.Ports.SerialPort -ArgumentList @('COM1', 115200)
    try {
        $port.Open()
        # What firmware and boot loader have left there may be half a line.
        $port.Write("`r`n{0}`r`n" -f $Text)
    }
    finally {
        $port.Dispose()
    }
}

function Get-WinRMPin {
    # sha256 of the certificate that the HTTPS listener shows, as lower-case digits.
    [CmdletBinding()]
    [OutputType([string])]
    param()
    $listeners = @(Get-ChildItem -Path 'WSMan:\localhost\Listener' |
            Where-Object -FilterScript { $_.Keys -contains 'Transport=HTTPS' })
    if ($listeners.Count -ne 1) {
        throw ('there are {0} HTTPS listeners, expected one' -f $listeners.Count)
    }
    $bound = Get-Item -Path ('WSMan:\localhost\Listener\{0}\CertificateThumbprint' -f $listeners[0].Name)
    $thumbprint = ([string] $bound.Value).Replace(' ', '')
    $certificate = Get-Item -LiteralPath ('Cert:\LocalMachine\My\{0}' -f $thumbprint)
    $sha256 = [System.Security.Cryptography.SHA256]::Create()
    try {
        $digest = $sha256.ComputeHash($certificate.RawData)
    }
    finally {
        $sha256.Dispose()
    }
    return [System.BitConverter]::ToString($digest).Replace('-', '').ToLowerInvariant()
}
