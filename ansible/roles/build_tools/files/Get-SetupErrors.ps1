# The last lines with errors in the installers' logs, newest log first.
[CmdletBinding()]
param(
    [Parameter(Mandatory)] [string[]] $Directories,
    [Parameter(Mandatory)] [string[]] $Patterns
)
$Ansible.Changed = $false
$logs = foreach ($directory in $Directories) {
    foreach ($pattern in $Patterns) {
        Get-ChildItem -LiteralPath $directory -Filter $pattern -File -ErrorAction SilentlyContinue
    }
}
foreach ($log in $logs | Sort-Object LastWriteTime -Descending | Select-Object -First 3) {
    $log.FullName
    Get-Content -LiteralPath $log.FullName -Tail 20 | ForEach-Object { [string] $_ }
}
