@{
    ExcludeRules = @(
        # For the log of docker build, beside a result.
        'PSAvoidUsingWriteHost'
        # Of functions inside a script: its own -WhatIf is asked before they are called.
        'PSUseShouldProcessForStateChangingFunctions'
        # Does not see what is used in a script block.
        'PSReviewUnusedParameter'
    )
    Rules        = @{
        PSUseCompatibleSyntax = @{
            Enable         = $true
            TargetVersions = @('5.1', '7.0')
        }
    }
}
