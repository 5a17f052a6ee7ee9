# Whether Windows trusts the signature of a file, and whose it is: 'Valid|CN=..., O=...'.
[CmdletBinding()]
param(
    [Parameter(Mandatory)] [string] $Path
)
$Ansible.Changed = $false
$signature = Get-AuthenticodeSignature -LiteralPath $Path
'{0}|{1}' -f $signature.Status, $signature.SignerCertificate.Subject
