<#
What PowerShell's own parser says of texts: a JSON file with a list of {name, text} becomes one with
{name, findings, commands, parameters} of each. Rules that PSScriptAnalyzer has are left to it; here
is what Windows PowerShell 5.1 does not take, and what opens a door.
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory = $true)]
    [string] $Asked,

    [Parameter(Mandatory = $true)]
    [string] $Told
)

Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

function Get-Rule {
    # Which rule a node breaks, if any. By name: 5.1 does not have the types of what is newer.
    [CmdletBinding()]
    param(
        [Parameter(Mandatory = $true)]
        [System.Management.Automation.Language.Ast] $Node
    )
    $text = $Node.Extent.Text
    $items = '^(Test-Path|New-ItemProperty|Compress-Archive|(Get|Set|Copy|Move|Remove)-(\w*Item\w*|Content|FileHash|AuthenticodeSignature))$'
    switch ($Node.GetType().Name) {
        'TernaryExpressionAst' { 'newer' }
        'PipelineChainAst' { 'newer' }
        'BinaryExpressionAst' { if ([string] $Node.Operator -eq 'QuestionQuestion') { 'newer' } }
        'AssignmentStatementAst' { if ([string] $Node.Operator -eq 'QuestionQuestionEquals') { 'newer' } }
        'ExpandableStringExpressionAst' { 'interpolation' }
        'StringConstantExpressionAst' { if ($text -match '^".*`u\{') { 'newer' } }
        'MemberExpressionAst' { if ($text -match '\?\.') { 'newer' } }
        'CommandAst' {
            if (@('iex', 'Invoke-Expression') -contains $Node.GetCommandName()) { 'running text' }
            if ($text -match '(?i)^&?\s*(powershell|pwsh)(\.exe)?\s.*\s-e(nc\w*)?\s') { 'running text' }
            if ($text -match '(?i)-Authentication[: ]+["'']?Basic') { 'insecure' }
            if ($text -match '(?i)(AllowUnencrypted|Basic)["'']?\s+(-Value\s+)?\$?true') { 'insecure' }
            if ($text -match '(?i)AllowUnencrypted\s*=\s*["'']?true') { 'insecure' }
            if ($text -match '(?i)-AsPlainText') { 'insecure' }
            # Brackets in a path are a pattern there, which what comes through a pipe never is.
            $isFirst = [object]::ReferenceEquals($Node.Parent.PipelineElements[0], $Node)
            if ($Node.GetCommandName() -match $items -and $isFirst -and $text -notmatch '-LiteralPath|WSMan:|-Path \S+\*') { 'pattern' }
            if ($text -match '(?i)-(Parallel|AsByteStream|AsHashtable)\b|utf8NoBOM') { 'newer' }
        }
        'InvokeMemberExpressionAst' {
            if ($text -match '(?i)ScriptBlock\]::Create\(|\.(InvokeScript|NewScriptBlock|AddScript)\(') { 'running text' }
        }
        'HashtableAst' {
            foreach ($pair in $Node.KeyValuePairs) {
                $isOpen = $pair.Item1.Extent.Text -match '(?i)\b(Basic|AllowUnencrypted)\b'
                if ($isOpen -and $pair.Item2.Extent.Text -match '(?i)^\(?\$true') { 'insecure' }
            }
        }
        'VariableExpressionAst' { if ($text -match '(?i)^\$Is(Windows|Linux|MacOS|CoreCLR)$') { 'newer' } }
        'ParameterAst' {
            $isSecret = $Node.Name.Extent.Text -match '(?i)passw(or)?d|passphrase|secret|token'
            if ($isSecret -and @('SecureString', 'PSCredential', 'SwitchParameter') -notcontains $Node.StaticType.Name) { 'insecure' }
        }
        'CatchClauseAst' { if ($Node.Body.Statements.Count -eq 0) { 'empty catch' } }
    }
}

$results = foreach ($item in (ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($Asked)))) {
    $tokens = $null
    $errors = $null
    $root = [System.Management.Automation.Language.Parser]::ParseInput($item.text, [ref] $tokens, [ref] $errors)
    $findings = @($errors | ForEach-Object -Process {
            @{ rule = 'syntax'; line = $_.Extent.StartLineNumber; what = $_.Message }
        })
    $commands = @()
    foreach ($node in $root.FindAll({ $true }, $true)) {
        foreach ($rule in @(Get-Rule -Node $node)) {
            $findings += @{ rule = $rule; line = $node.Extent.StartLineNumber; what = $node.Extent.Text }
        }
        if ($node -is [System.Management.Automation.Language.CommandAst]) {
            $given = @($node.CommandElements |
                    Where-Object -FilterScript { $_ -is [System.Management.Automation.Language.CommandParameterAst] } |
                    ForEach-Object -Process { $_.ParameterName })
            $commands += @{ name = [string] $node.GetCommandName(); parameters = $given }
        }
    }
    $own = @{}
    if ($null -ne $root.ParamBlock) {
        foreach ($parameter in $root.ParamBlock.Parameters) {
            $own[$parameter.Name.VariablePath.UserPath] = "$($parameter.Attributes)" -match 'Mandatory'
        }
    }
    @{ name = $item.name; findings = $findings; commands = $commands; parameters = $own }
}
[System.IO.File]::WriteAllText($Told, (ConvertTo-Json -InputObject @($results) -Depth 6 -Compress))
