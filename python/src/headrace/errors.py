"""What can go wrong, by what the caller can do about it."""

import re

import pyarrow as pa
from pyarrow import flight


class HeadraceError(Exception):
    """The root of everything this package raises."""


class AuthError(HeadraceError):
    """No, bad or expired token, or an action the caller may not take."""


class NotFoundError(HeadraceError):
    """A data set or column that is not there, or that the caller may not know of."""


class RequestError(HeadraceError):
    """A request that is malformed, contradicts itself or can never be served."""


class PlanChangedError(HeadraceError):
    """The snapshot is gone or changed, or the cursor belongs to another plan."""


class UnavailableError(HeadraceError):
    """The gateway cannot be reached, or cannot serve now; trying later can help."""


class DataError(HeadraceError):
    """Data that is corrupt, or a stream that did not deliver what its plan says."""


# pyarrow folds several gRPC codes into one class, and some calls lose the class too, but its text begins with the code
# in words, followed by the gateway's own.
_STATUS = re.compile(
    r"^(?:\w+: )?(?:Flight|gRPC) (?:returned )?(?P<code>[\w -]+?)(?: error)?,? with message: (?P<words>.*?)"
    r"(?:\. gRPC client debug context: .*|\. Detail: \w+)?$",
    re.DOTALL,
)

_BY_CODE = {
    "unauthenticated": AuthError,
    "unauthorized": AuthError,
    "not found": NotFoundError,
    "invalid argument": RequestError,
    "out-of-range": RequestError,
    "unimplemented": RequestError,
    "precondition failed": PlanChangedError,
    "unavailable": UnavailableError,
    "timeout": UnavailableError,
    "data loss": DataError,
}

# Where the text does not begin so, the class says what it can. Any other means that what came could not be decoded.
_BY_CLASS = (
    (flight.FlightUnauthenticatedError, AuthError),
    (flight.FlightUnauthorizedError, AuthError),
    (flight.FlightUnavailableError, UnavailableError),
    (flight.FlightTimedOutError, UnavailableError),
    (flight.FlightError, HeadraceError),
    (pa.ArrowKeyError, NotFoundError),
    (pa.ArrowNotImplementedError, RequestError),
    (Exception, DataError),
)

# What gRPC calls unavailable though trying again cannot mend it, and what can. The words are those of OpenSSL or of
# BoringSSL, as pyarrow was built.
_HOPELESS = (
    (
        re.compile(r"certificate[ _]verify[ _]failed", re.IGNORECASE),
        "its certificate is not trusted: pass tls_ca= a file of the certificates to trust",
    ),
    (
        re.compile(r"is not in peer certificate"),
        "its certificate is for another name: connect by one that it has",
    ),
    (
        re.compile(r"wrong[ _]version[ _]number", re.IGNORECASE),
        "it does not speak TLS: connect to grpc:// instead of grpc+tls://",
    ),
)

# A connection that breaks in mid-call is INTERNAL or UNKNOWN where gRPC noticed it by a reset of the stream.
_BROKEN = re.compile(r"RST_STREAM|Stream removed|Socket closed|Connection reset|Broken pipe|GOAWAY", re.IGNORECASE)


def translate(error: Exception) -> HeadraceError:
    """Returns what to raise for an exception of pyarrow."""
    text = str(error)
    status = _STATUS.search(text)
    if status is None:
        return next(ours for theirs, ours in _BY_CLASS if isinstance(error, theirs))(text)
    if status["code"] in ("internal", "RPC failed") and _BROKEN.search(status["words"]):
        return UnavailableError(status["words"])
    if status["words"].startswith("failed to connect"):  # a gateway's own words never count
        for says, help_ in _HOPELESS:
            if says.search(status["words"]):
                return HeadraceError(f"cannot connect to the gateway, {help_} ({status['words']})")
    return _BY_CODE.get(status["code"], HeadraceError)(status["words"])
