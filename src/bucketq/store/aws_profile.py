"""Credentials of AWS profiles: static keys, SSO, assumed roles, ``credential_process``.

The client reads the environment, web identities, containers and instance roles by itself, but not
the files in ``~/.aws``. Those are read by botocore, which the command line of AWS uses too, so a
profile that works there works here. It is an extra (``aws``), and imported for profiles only.

No message repeats what botocore reports: it may contain the output of a command.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from bucketq.clock import SystemClock
from bucketq.errors import InvalidRequestError

_VALID_FOR = timedelta(minutes=10)
"""When the client asks again. botocore renews credentials earlier than this before they expire."""
_OTHERS = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""What the client reads by itself, and what therefore comes before a default profile."""
_SOURCES = frozenset(
    {
        "aws_access_key_id",
        "credential_process",
        "login_session",
        "role_arn",
        "sso_account_id",
        "sso_session",
    }
)
"""Settings of a profile that give it credentials. Many default profiles have a region only."""
_SIGN_IN = frozenset({"SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError"})


def find_profile(environ: Mapping[str, str]) -> str | None:
    """Return the name of the profile that gives the credentials; None if something else does.

    Raises:
        InvalidRequestError: The token of a web identity cannot be read. The client would retry.
    """
    if environ.get("AWS_ACCESS_KEY_ID"):
        return None
    # In the order of botocore.
    named = environ.get("AWS_DEFAULT_PROFILE") or environ.get("AWS_PROFILE")
    if named:
        return named
    if environ.get("AWS_ROLE_ARN"):
        _check_token(environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    if any(environ.get(name) for name in _OTHERS):
        return None
    return "default" if _has_default(environ) else None


def _check_token(path: str | None) -> None:
    """Check that a web identity has a token, which it names by the path of a file."""
    try:
        if path:
            Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequestError(
            f"AWS_WEB_IDENTITY_TOKEN_FILE names {path}, which cannot be read "
            f"({error.strerror}): check that the token of the service account is mounted there"
        ) from error


def _has_default(environ: Mapping[str, str]) -> bool:
    """Whether the files of AWS have a default profile with credentials."""
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
        "AWS_CONFIG_FILE": "~/.aws/config",
    }
    for variable, usual in files.items():
        found = configparser.RawConfigParser(strict=False, default_section="")
        try:
            found.read(Path(environ.get(variable) or usual).expanduser(), "utf-8")
        except (OSError, RuntimeError, UnicodeDecodeError, configparser.Error):
            continue
        for section in ("default", "profile default"):
            if found.has_section(section) and not _SOURCES.isdisjoint(found[section]):
                return True
    return False


class ProfileCredentials:
    """Provides the credentials of a profile, and renews them."""

    def __init__(self, profile: str) -> None:
        """Read the profile; nothing is sent and no command is run yet.

        Raises:
            InvalidRequestError: There is no such profile, or botocore is not installed.
        """
        self.profile = profile
        self.problem = ""
        """Why there were no credentials when they were last asked for."""
        try:
            # An extra, which takes 0.3 s to import.
            from botocore import exceptions, session  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise InvalidRequestError(
                f"the AWS profile {profile!r} needs one more package: "
                'pip install "bucketq[aws]"; or put its credentials into the environment: '
                f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
            ) from error
        self._session: Any = session.Session(profile=profile)
        self._credentials: Any = None
        try:
            self._session.get_scoped_config()
            self.region: str | None = self._session.get_config_variable("region")
        except (exceptions.BotoCoreError, UnicodeDecodeError) as error:
            is_missing = isinstance(error, exceptions.ProfileNotFound)
            reason = "is in none of its files" if is_missing else "cannot be read"
            message = (
                f"the AWS profile {profile!r} {reason}: check AWS_PROFILE, ~/.aws/config and "
                "~/.aws/credentials"
            )
            # Not chained: the cause may repeat a line of the file of secrets.
            raise InvalidRequestError(message) from None

    def __call__(self) -> dict[str, Any]:
        """Return credentials, as the client asks for them."""
        try:
            if self._credentials is None:
                self._credentials = self._session.get_credentials()
            # None if the profile has no credentials.
            found = self._credentials.get_frozen_credentials()
        except Exception as error:
            self.problem = self._explain(error)
            raise
        self.problem = ""
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": SystemClock().now() + _VALID_FOR,
        }

    def _explain(self, error: Exception) -> str:
        """Describe an error of botocore, without its text."""
        if self._credentials is None and isinstance(error, AttributeError):
            return f"the AWS profile {self.profile!r} has no credentials"
        kind = type(error).__name__
        if kind in _SIGN_IN:
            login = f"run `aws sso login --profile {self.profile}`"
            return f"the AWS profile {self.profile!r} is not signed in ({kind}): {login}"
        return (
            f"the AWS profile {self.profile!r} gave no credentials ({kind}): check it with "
            f"`aws sts get-caller-identity --profile {self.profile}`"
        )
