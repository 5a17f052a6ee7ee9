# Runs what comes on standard input, base64 of a script a line, each in a runspace of its own, and
# says in a line of JSON what became of it.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
while ($null -ne ($line = [System.Console]::In.ReadLine())) {
    $told = @{ output = @(); error = ''; warnings = @() }
    $shell = [PowerShell]::Create()
    $output = New-Object -TypeName 'System.Management.Automation.PSDataCollection[PSObject]'
    try {
        $null = $shell.AddScript([System.Text.Encoding]::UTF8.GetString([System.Convert]::FromBase64String($line)))
        $shell.Invoke($null, $output)
        $told.error = @($shell.Streams.Error | ForEach-Object -Process { $_.ToString() }) -join '; '
    }
    catch {
        $problem = $_.Exception
        while ($null -ne $problem.InnerException) {
            $problem = $problem.InnerException
        }
        $told.error = $problem.Message
    }
    $told.output = @($output | ForEach-Object -Process { [string] $_ })
    $told.warnings = @($shell.Streams.Warning | ForEach-Object -Process { $_.Message })
    $shell.Dispose()
    [System.Console]::Out.WriteLine('wcw-result ' + (ConvertTo-Json -InputObject $told -Compress))
    [System.Console]::Out.Flush()
}
