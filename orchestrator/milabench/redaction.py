"""Decides which values are secrets, and masks them, in a single place. Standard library only, Python 3.8: the agent uses it too.

A secret is known by its name (a variable, a key of a suite, an option), or as the part of a URL before its
host. The value of a known secret is masked wherever it occurs, in the forms in which programs write it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, List, Set, Tuple

MASK = "***"
LEAST_CHARACTERS = 8
"""Minimum number of characters of a searched value: a shorter one would hide unrelated text."""

# --- by name --------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[-\w]+\Z")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = {
    *("token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pass", "pwd"),
    *("credential", "credentials", "auth", "pat", "bearer", "jwt", "apikey", "apikeys", "cookie", "cookies"),
    *("authorization", "cred", "creds", "dsn", "otp", "conn", "connstr"),
}
# How it is written is no part of a name: TLS_KEY_PEM.
_WRITTEN = re.compile(r"(?i)[-_](?:pem|der|b64|base64)\Z")
_ALONE = {"KEY", "KEYS", "TOKENS", "SESSION", "PIN"}  # of anything, but for a variable of the environment
# Without an underscore: MYTOKEN, DBPASS, AZUREKEY; but for words of the language that end so.
_ENDING = re.compile(r".(?:token|secret|password|passwd|passphrase|pwd|pass|key)\Z")
_LANGUAGE = {
    *("monkey", "donkey", "turkey", "hotkey", "hockey", "jockey", "whiskey", "turnkey", "lesskey", "pubkey"),
    *("compass", "bypass", "overpass", "underpass", "askpass", "subtoken"),
}
# What is said about a secret is none, by the last word of its name ...
_ABOUT = {
    *("file", "files", "path", "dir", "directory", "folder", "store", "url", "uri", "endpoint", "host", "port", "home"),
    *("sock", "socket", "name", "names", "user", "username", "email", "id", "ids", "type", "method", "mode", "env"),
    *("algorithm", "length", "len", "count", "counts", "size", "limit", "budget", "rate", "ttl", "expiry", "timeout"),
    *("index", "version", "provider", "helper", "program", "command", "enabled", "required", "tty", "dim", "ratio"),
    *("ms", "latency", "time", "usage", "prefix", "suffix", "format", "scope", "scopes", "agent", "parallelism"),
}
# ... and what a word before it makes another thing: tokens of language models, keys of tables, passes over data.
_OTHERWISE = {
    *("max", "min", "num", "n", "total", "new", "per", "next", "first", "last", "prompt", "input", "output", "text"),
    *("pad", "eos", "bos", "unk", "cls", "sep", "mask", "special", "image", "audio", "stop", "start", "end", "draft"),
    *("sort", "cache", "primary", "foreign", "partition", "group", "metric", "public", "lookup", "dict", "column"),
    *("forward", "backward", "single", "multi", "second", "label", "target", "data", "host", "by", "inter"),
    *("energy", "forces"),
}
_NONE = {"pwd", "oldpwd", "sshkey", "google_application_credentials"}  # folders and files by their paths


@lru_cache(maxsize=1 << 14)
def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is a secret: a variable, a key of a suite, an option.

    Of a dotted name each key counts but the first, which is the name of a benchmark.
    """
    _, *keys = name.split(".")
    if keys:
        return any(map(is_secret_name, keys))
    name = _WRITTEN.sub("", name)
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or name.lower() in _NONE or not _NAME.match(name):
        return False
    if name.upper() in _ALONE:
        return name.isupper()
    # Who knows the address of a webhook can use it.
    if "webhook" in name.lower():
        return words[-1] in ("url", "uri", "endpoint") or words[-1] not in _ABOUT
    if words[-3:] == ["access", "key", "id"] or words[-2:] == ["connection", "string"] or words[1:][-1:] == ["sas"]:
        return True
    if words[-1] in _ABOUT:
        return False
    before = ["", *words]
    for word, other in zip(words, before):
        if other not in _OTHERWISE and (word in _SECRET or (_ENDING.search(word) and word not in _LANGUAGE)):
            return True
    # `key` only at the end (not in key_value_heads), several only of what they open (not in sort_keys, max_tokens).
    if words[-1] == "key":
        return before[-2] not in _OTHERWISE
    return words[-1] in ("keys", "tokens") and before[-2] in ("api", "access", "auth", "secret", "private", "ssh")


def secret_names(env: Mapping[str, object]) -> Tuple[str, ...]:
    """Return the names of `env` that hold secrets, by their words."""
    return tuple(sorted(name for name in env if is_secret_name(name)))


# --- in texts -------------------------------------------------------------------------------------------------------

# Before the host of a URL: a user with a password, or a token alone. `git@` is the user of every host of repositories, and
# what has a digest behind it is an image; `:@port` is a port that is not known yet.
_USERINFO = re.compile(r"://(?!git@)([^/?#\s'\"\\<>]+)@(?!sha256:|(?<=:@)port(?![\w.-]))")
_USERINFO_BYTES = re.compile(_USERINFO.pattern.encode())
# NAME=value, --name=value, and NAME: value as YAML, JSON and Python write it.
# A name begins where what it may consist of does, and a value is read for a secret only: linear in the text.
_NAMED = re.compile(
    r"(?<![A-Za-z0-9_.-])[0-9.-]*([A-Za-z_][A-Za-z0-9_.-]*)(=|[\\\"']*\s*:\s*[\\\"']*)(?=[^\s\"'\\,{}\[\]])"
)
_ASSIGNED = re.compile(_NAMED.pattern + r"([^\s\"'\\,}\]]*)")
_OPTION = re.compile(r"(?<!\S)--?([A-Za-z][\w-]*)\s+([^\s-]\S*)")
_GIVEN = re.compile(r"((?:--[\w-]+=)?([^={]*))=")
_RESTS = 8  # of a text: the rests of a thousand assignments are as long as all of them, a thousand times
# In lower case. Looked for one by one: an expression that holds all of them takes 0.3 us for each character.
_MAY_HOLD = tuple(
    "token secret pass pwd key cred auth pat jwt cookie bearer webhook conn dsn otp sas session pin ://".split()
)


def mask_urls(text: str) -> str:
    """Return the text with the parts of its URLs before their hosts as `***`."""
    return _USERINFO.sub(f"://{MASK}@", text) if "@" in text and "://" in text else text


def _may_hold(text: str) -> bool:
    """Return whether there may be a secret in a text, which most do not have. quick."""
    lower = text.lower()
    return any(word in lower for word in _MAY_HOLD)


def _assignments(text: str) -> Iterator[re.Match[str]]:
    """Yield assignments to secret names: the name, the text between, and the value."""
    named = _NAMED.search(text)
    while named is not None:
        match = _ASSIGNED.match(text, named.start()) if is_secret_name(named[1]) else None
        if match is not None:
            yield match
        # The value of another name may itself be an assignment: `"command": "TOKEN=..."`.
        named = _NAMED.search(text, named.end() if match is None else match.end())


def _without(text: str, matches: Iterable[re.Match[str]]) -> str:
    """Return the text with the values of assignments as `***`."""
    pieces, end = [], 0
    for match in matches:
        pieces += [text[end : match.start(3)], MASK]
        end = match.end()
    return "".join([*pieces, text[end:]])


def mask_assignments(text: str) -> Tuple[str, int]:
    """Return the text with the values assigned to secret names as `***`, and their number.

    After a colon only quoted values count: `"token": 5` is a number of a record.
    """
    if not _may_hold(text):
        return text, 0
    matches = [match for match in _assignments(text) if match[2][-1] in "=\"'" and match[3] != MASK]
    return _without(text, matches), len(matches)


def mask_argument(word: str) -> str:
    """Return an argument of a command line of ours without the values that it gives to secrets, however short.

    `bench.env.HF_TOKEN=value`, by itself or behind `--override=`, loses everything after its `=`. A mapping its values.
    """
    given = _GIVEN.match(word)
    if given is not None and is_secret_name(given[2].replace('"', "")):
        return f"{given[1]}={MASK}"
    return mask_urls(_without(word, _assignments(word)))


def _values_in_text(text: str) -> Iterator[str]:
    """Yield the secrets that a text shows by itself: assigned to a secret name, given to such an option, in a URL."""
    if not _may_hold(text):
        return
    for number, match in enumerate(_assignments(text)):
        yield match[3]
        if match[2] == "=" and number < _RESTS:  # in a shell, the rest of the word
            yield text[match.start(3) :]
    for match in _OPTION.finditer(text):
        if is_secret_name(match[1]):
            yield match[2]
    for match in _USERINFO.finditer(text):
        from urllib.parse import unquote

        user, _, password = match[1].partition(":")
        # A user alone is a token to a web server, and a name to all others.
        if password or text.endswith(("http", "https"), 0, match.start()):
            yield unquote(password or user)


def values_in(data: object, name: str = "") -> Iterator[str]:
    """Yield the secrets in plain data: values under secret names, and secrets that texts show by themselves."""
    for own, text in _named_texts(data, name):
        if own and is_secret_name(own):
            yield text
        yield from _values_in_text(text)


def _named_texts(data: object, name: str = "") -> Iterator[Tuple[str, str]]:
    """Yield the texts in plain data with their names: their keys, or the options before them in a command line."""
    if isinstance(data, str):
        yield name, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _named_texts(value, str(key))
    elif isinstance(data, (list, tuple)):
        option = ""
        for item in data:
            yield from _named_texts(item, option)
            option = _option(item)


def _option(word: object) -> str:
    """Return an option whose value is the next word. Empty for anything else."""
    return word if isinstance(word, str) and word.startswith("-") and "=" not in word else ""


def values_in_environment(env: Mapping[str, str]) -> List[str]:
    """Return the secrets among variables: values of secret names unless they are existing paths, and secrets in URLs."""
    values = [value for name, value in env.items() if is_secret_name(name) and not _is_path(value)]
    urls = (value for value in env.values() if "://" in value)
    return [*values, *(value for url in urls for value in _values_in_text(url))]


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~/")) and os.path.exists(os.path.expanduser(value))


# --- by value -------------------------------------------------------------------------------------------------------

_ONE_WORD = re.compile(r"[A-Za-z]{1,10}\Z")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?\Z")


def is_searchable(value: str) -> bool:
    """Return whether a value is looked for in text: not when it is short, a number, or a single short word of letters."""
    return len(value) >= LEAST_CHARACTERS and not _NUMBER.match(value) and not _ONE_WORD.match(value)


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may stand in a text, and in a text within JSON."""
    import json

    # A key of several lines is met line by line.
    for line in {value, *(line.strip() for line in value.splitlines())}:
        if is_searchable(line) and "\n" not in line:
            for form in _written(line):
                yield form
                yield json.dumps(form)[1:-1]
                yield json.dumps(form, ensure_ascii=False)[1:-1]


def _written(line: str) -> Iterator[str]:
    """Yield a value as it is, escaped for JSON, Python, HTML, URLs and shells, and in base64."""
    import base64  # these take longer to load than all the rest of an agent that has no secret
    import html
    import json
    from urllib.parse import quote, quote_plus

    yield from (line, json.dumps(line)[1:-1], repr(line)[1:-1], html.escape(line))
    yield from (quote(line), quote(line, safe=""), quote_plus(line), line.replace("'", "'\"'\"'"))
    # In base64 it looks different by what is before it (`user:`): what depends on its neighbours is left out.
    raw = line.encode("utf-8", "surrogateescape")
    for offset in range(3):
        whole = base64.b64encode(bytes(offset) + raw).decode()
        core = whole[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6]
        yield from (core, core.replace("+", "-").replace("/", "_"))


class Masker:
    """Replaces known values in written text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in set(values) for form in _forms(value)}
        # The longest first: one secret may be part of another.
        self._forms = sorted(forms, key=len, reverse=True)
        self._bytes = [form.encode("utf-8", "surrogateescape") for form in self._forms]
        self._longest = max(map(len, self._bytes), default=0)

    def mask_text(self, text: str) -> str:
        """Return the text without known values and credentials of URLs."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return mask_urls(text)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return lines of text or JSON without known values and credentials of URLs."""
        for form in self._bytes:
            if form in data:
                data = data.replace(form, MASK.encode())
        if b"@" in data and b"://" in data:
            data = _USERINFO_BYTES.sub(b"://%s@" % MASK.encode(), data)
        return data

    def may_hold(self, data: bytes) -> bool:
        """Return whether known values or credentials of URLs may be in JSON."""
        for form in self._bytes:
            if form in data:
                return True
        # From the end, where a search is three times as fast: JSON has many more slashes than colons.
        if data.rfind(b"://") < 0 or b"@" not in data:
            return False
        # What is escaped in JSON may be part of what is before a host.
        return b"\\" in data or _USERINFO.search(data.decode("utf-8", "surrogatepass")) is not None

    def mask_data(self, value: Any, *, is_named: bool = False, name: str = "") -> Any:
        """Return plain data without known values in any of its texts. `is_named`: nor values under secret names.

        `name` is the name of this value.
        """
        # Plans of thousands of steps pass here: what most values are comes first.
        kind = type(value)
        if kind is str:
            return MASK if is_named and value and is_secret_name(name) else self.mask_text(value)
        if kind is list or kind is tuple:
            items = self._items(value, is_named)
            return tuple(items) if kind is tuple else items
        if kind is dict or isinstance(value, Mapping):
            masked = {key: self.mask_data(item, is_named=is_named, name=str(key)) for key, item in value.items()}
            return {self.mask_data(key): item for key, item in masked.items()} if self._forms else masked
        return value

    def _items(self, values: Iterable[object], is_named: bool) -> List[object]:
        """Return the items of a list. A word after an option has the option's name."""
        items, option = [], ""
        for item in values:
            items.append(self.mask_data(item, is_named=is_named, name=option))
            option = _option(item) if is_named else ""
        return items

    def held_back(self, data: bytes) -> int:
        """Return how many bytes at the end of unfinished output may be the beginning of a known value."""
        for start in range(max(0, len(data) - self._longest + 1), len(data)):
            rest = data[start:]
            if any(form.startswith(rest) for form in self._bytes):
                return len(rest)
        return 0


class _Known:
    """The secrets that this process has met so far, and their masker."""

    def __init__(self) -> None:
        self.values: Set[str] = set()
        self.masker = Masker()


_KNOWN = _Known()


def learn(values: Iterable[str]) -> None:
    """Take note of secrets: from here on nothing that this process writes holds them."""
    new = {value for value in values if value and "${" not in value and MASK not in value} - _KNOWN.values
    if new:
        _KNOWN.values = _KNOWN.values | new
        _KNOWN.masker = Masker(_KNOWN.values)


def forget() -> None:
    """Know no secret again, as in a new process."""
    _KNOWN.values, _KNOWN.masker = set(), Masker()


def mask(text: str) -> str:
    """Return a text as it may be written. See `Masker.mask_text`."""
    return _KNOWN.masker.mask_text(text)


def mask_bytes(data: bytes) -> bytes:
    """Return lines of output or JSON as they may be written."""
    return _KNOWN.masker.mask_bytes(data)


def mask_data(value: object) -> Any:
    """Return plain data as it may be written."""
    return _KNOWN.masker.mask_data(value)


def mask_settings(value: object) -> Any:
    """Return settings (of a suite, a command line) as they may be written: also without values under secret names.

    However short that is, and not for other data, whose keys may be anything.
    """
    return _KNOWN.masker.mask_data(value, is_named=True)


def may_hold_secret(data: bytes) -> bool:
    """Return whether known secrets, or credentials of URLs, may be in JSON. Values under secret names are not searched."""
    return _KNOWN.masker.may_hold(data)


def secrets_within(*data: Any) -> List[str]:
    """Return the known secrets that occur in some data, which another machine has to know."""
    texts = [text for _, text in _named_texts(data)]
    return sorted(
        value for value in _KNOWN.values if any(form in text for form in {value, *_forms(value)} for text in texts)
    )
