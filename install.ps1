<#
.SYNOPSIS
Installs elbowroom for the one who runs this, without an administrator, and takes it back.

.DESCRIPTION
    powershell -ExecutionPolicy Bypass -File install.ps1                installs, or brings what is installed up to date
    powershell -ExecutionPolicy Bypass -File install.ps1 FILE.whl       from this file
    powershell -ExecutionPolicy Bypass -File install.ps1 -Autostart     and starts it at every log-on
    powershell -ExecutionPolicy Bypass -File install.ps1 -Uninstall     removes all of it but the data folder

All of it is in one folder, %LOCALAPPDATA%\Programs\elbowroom (or ELBOWROOM_HOME), which is put on your PATH. Where there
is no Python from 3.11 on, uv brings its own into that folder; where there is no uv, uv's installer brings that.
Neither git nor a compiler is needed.
#>
[CmdletBinding()]
param(
    [Parameter(Position = 0)]
    [string] $Source = '',
    [switch] $Uninstall,
    [switch] $Autostart,
    [switch] $NoAutostart
)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$Root = Join-Path $env:LOCALAPPDATA 'Programs\elbowroom'
if ($env:ELBOWROOM_HOME) { $Root = $env:ELBOWROOM_HOME }
$Mark = Join-Path $Root 'made-by-install.ps1'
$Environment = Join-Path $Root 'environment'
$Python = Join-Path $Environment 'Scripts\python.exe'
$Program = Join-Path $Environment 'Scripts\elbowroom.exe'
$Folder = Join-Path $Root 'bin'
$Own = @('environment', 'python', 'cache', 'uv', 'bin')

function Invoke-Checked {
    # Runs a program and stops with a sentence where it fails: Windows PowerShell would go on.
    param([string] $Command, [string[]] $Arguments)
    & $Command @Arguments
    if ($LASTEXITCODE -ne 0) { throw "$Command ended with $LASTEXITCODE; its message is above." }
}

function Get-Source {
    # What was named, else a wheel or the sources beside this file, else the published package.
    if ($Source) { return $Source }
    if (-not $PSScriptRoot) { return 'elbowroom' }
    $wheels = Get-ChildItem -Path $PSScriptRoot -Filter 'elbowroom-*.whl'
    if ($wheels) { return ($wheels | Sort-Object -Property LastWriteTime | Select-Object -Last 1).FullName }
    if (Test-Path -Path (Join-Path $PSScriptRoot 'pyproject.toml')) { return $PSScriptRoot }
    return 'elbowroom'
}

function Find-Python {
    # The newest Python from 3.11 on that the launcher or the PATH has; the Store's placeholder answers nothing.
    $candidates = @(
        @('py', '-3.14'), @('py', '-3.13'), @('py', '-3.12'), @('py', '-3.11'), @('python')
    )
    foreach ($candidate in $candidates) {
        if (-not (Get-Command -Name $candidate[0] -ErrorAction SilentlyContinue)) { continue }
        $rest = @($candidate | Select-Object -Skip 1)
        $asked = $rest + @('-c', 'import ensurepip, sys, venv; print(sys.executable if sys.version_info >= (3, 11) else str())')
        try {
            $found = & $candidate[0] @asked 2>$null
            if ($LASTEXITCODE -eq 0 -and $found) { return [string] $found }
        } catch {
            Write-Verbose "$candidate does not start: $_"
        }
    }
    return ''
}

function Get-Uv {
    # uv as it is on the PATH, else one of our own beside the program, which changes no PATH.
    $found = Get-Command -Name 'uv' -ErrorAction SilentlyContinue
    if ($found) { return $found.Source }
    $own = Join-Path $Root 'uv\uv.exe'
    if (-not (Test-Path -Path $own)) {
        [Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12
        $installer = Join-Path $Root 'uv-installer.ps1'
        Invoke-WebRequest -Uri 'https://astral.sh/uv/install.ps1' -OutFile $installer -UseBasicParsing
        $env:UV_UNMANAGED_INSTALL = Join-Path $Root 'uv'
        try {
            Invoke-Checked -Command 'powershell' -Arguments @('-ExecutionPolicy', 'Bypass', '-File', $installer) | Out-Host
        } finally {
            Remove-Item -Path $installer
        }
    }
    return $own
}

function Build-Environment {
    param([string] $What)
    $found = ''
    if (-not $env:ELBOWROOM_USE_UV) { $found = Find-Python }
    if ($found) {
        Write-Output "Installing with $found into $Root ..."
        Invoke-Checked -Command $found -Arguments @('-m', 'venv', '--clear', $Environment)
        Invoke-Checked -Command $Python -Arguments @('-m', 'pip', '--disable-pip-version-check', '--no-cache-dir', '--quiet', 'install', '--no-compile', $What)
    } else {
        Write-Output "Installing with uv, which brings its own Python, into $Root ..."
        $uv = Get-Uv
        $env:UV_PYTHON_INSTALL_DIR = Join-Path $Root 'python'
        $env:UV_CACHE_DIR = Join-Path $Root 'cache'
        Invoke-Checked -Command $uv -Arguments @('venv', '--quiet', '--clear', '--python', '>=3.11', $Environment)
        Invoke-Checked -Command $uv -Arguments @('pip', 'install', '--quiet', '--python', $Python, $What)
        Remove-Item -Path $env:UV_CACHE_DIR -Recurse -Force
    }
}

function Get-DataFolder {
    # As the program itself names it. On Windows the settings lie in it as well.
    & $Python -c 'import os; from elbowroom.settings.fields import data_dir; print(data_dir(os.environ))'
}

function Set-UserPath {
    # Adds our folder to the PATH of this user, or takes it away.
    param([switch] $Remove)
    $key = [Microsoft.Win32.Registry]::CurrentUser.OpenSubKey('Environment', $true)
    try {
        # As it is written, with %NAMES%: read in another way, they would be written back as what they stand for today.
        $path = [string] $key.GetValue('Path', '', [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
        $parts = @($path -split ';' | Where-Object { $_ -and $_ -ne $Folder })
        if (-not $Remove) { $parts += $Folder }
        $key.SetValue('Path', ($parts -join ';'), [Microsoft.Win32.RegistryValueKind]::ExpandString)
    } finally {
        $key.Close()
    }
}

function Install-Elbowroom {
    if ((Test-Path -Path $Root) -and -not (Test-Path -Path $Mark) -and (Get-ChildItem -Path $Root -Force)) {
        throw "$Root is there already, and not from here. Move it away, or name another folder with ELBOWROOM_HOME."
    }
    New-Item -ItemType Directory -Path $Root, $Folder -Force | Out-Null
    New-Item -ItemType File -Path $Mark -Force | Out-Null
    Build-Environment -What (Get-Source)
    Set-Content -Path (Join-Path $Folder 'elbowroom.cmd') -Encoding Ascii -Value "@`"%~dp0..\environment\Scripts\elbowroom.exe`" %*"
    Set-UserPath
    $version = & $Program --version
    Write-Output "$version is installed in $Root. A new terminal knows it by its name."
    $wanted = [bool] $Autostart
    if (-not $Autostart -and -not $NoAutostart -and [Environment]::UserInteractive -and -not [Console]::IsInputRedirected) {
        $wanted = (Read-Host -Prompt 'Start it whenever you log on? [y/N]') -match '^[yY]'
    }
    if ($wanted) {
        & $Program autostart on
        if ($LASTEXITCODE -ne 0) { Write-Output 'It does not start at log-on; the reason is above. It is installed all the same.' }
    } else {
        Write-Output 'Start it: elbowroom serve     See it without a model: elbowroom demo     At log-on: elbowroom autostart on'
    }
    Write-Output 'Take it back: powershell -ExecutionPolicy Bypass -File install.ps1 -Uninstall'
}

function Remove-Own {
    # Only what this script has made: a folder that was named by mistake keeps what else is in it.
    foreach ($name in $Own) {
        $path = Join-Path $Root $name
        if (Test-Path -Path $path) { Remove-Item -Path $path -Recurse -Force }
    }
    Remove-Item -Path $Mark -Force
    if (Get-ChildItem -Path $Root -Force) {
        Write-Output "$Root has other files in it, which stay."
    } else {
        Remove-Item -Path $Root
    }
}

function Uninstall-Elbowroom {
    if (-not (Test-Path -Path $Mark)) { throw "There is no installation of this script's in $Root." }
    $data = ''
    if (Test-Path -Path $Program) {
        & $Program autostart off
        if ($LASTEXITCODE -ne 0) { throw 'It is still started at log-on; the reason is above. Nothing was removed.' }
        $data = Get-DataFolder
    }
    Remove-Own
    Set-UserPath -Remove
    Write-Output "Removed $Root, and its folder from your PATH."
    if ($data -and (Test-Path -Path $data)) {
        Write-Output "Left: $data, with your conversations and your settings. Delete that folder to have nothing left."
    }
    Write-Output 'What `elbowroom connect` and `elbowroom obsidian` have written into other programs is theirs now, and stays.'
}

if ($Uninstall) { Uninstall-Elbowroom } else { Install-Elbowroom }
