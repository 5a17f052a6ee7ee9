# The one command line that the pipeline ever gives to PowerShell (-EncodedCommand): a constant.
# It reads two lines from standard input, the script (UTF-8 in base64) and its parameters (a JSON
# object), and leaves the rest of the input to the script.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
try {
    $script = [System.Text.Encoding]::UTF8.GetString([System.Convert]::FromBase64String([System.Console]::In.ReadLine()))
    $given = ConvertFrom-Json -InputObject ([System.Console]::In.ReadLine())
    $parameters = @{}
    foreach ($property in $given.PSObject.Properties) {
        $parameters[$property.Name] = $property.Value
    }
    & ([ScriptBlock]::Create($script)) @parameters
}
catch {
    [System.Console]::Error.WriteLine($_.ToString())
    exit 1
}
