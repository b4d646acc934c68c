"""What is a secret, by name and in texts, and where its value is found."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest

from milabench.errors import ConfigError, Problem
from milabench.redaction import (
    LEAST_CHARACTERS,
    MASK,
    Masker,
    is_secret_name,
    learn,
    mask,
    mask_argument,
    mask_assignments,
    mask_data,
    mask_settings,
    secret_names,
    secrets_within,
    values_in,
    values_in_environment,
)

# The table of docs/reference/secrets.md.
SECRET = [
    "HF_TOKEN",
    "MYTOKEN",
    "GH_TOKEN_2",
    "--hf-token",
    "TOKEN_PROD",
    "_authToken",
    "AWS_SESSION_TOKEN",
    "API_TOKENS",
    "DB_PASSWORD",
    "PGPASSWORD",
    "MYSQL_PWD",
    "X_PWD",
    "DBPASS",
    "SMTP_PASS",
    "SSH_PASSPHRASE",
    "password",
    "--password",
    "OPENAI_API_KEY",
    "apikey",
    "apiKey",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "AZURE_STORAGE_KEY",
    "AZUREKEY",
    "KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "SECRET_KEY_BASE",
    "CLIENT_SECRET",
    "MYSECRET",
    "GITHUB_PAT",
    "BASIC_AUTH",
    "NPM_CONFIG__AUTH",
    "SESSION_COOKIE",
    "BEARER",
    "AWS_CREDENTIALS",
    "API_KEYS",
    "AUTHORIZATION",
    "Proxy-Authorization",
    "TLS_KEY_PEM",
    "SSH_KEY_BASE64",
    "DB_CREDS",
    "BLOB_SAS",
    "SENTRY_DSN",
    "SLACK_WEBHOOK",
    "SLACK_WEBHOOK_URL",
    "AIRFLOW_CONN_POSTGRES",
    "DB_CONN",
    "TOKENS",
    "SESSION",
    "OTP",
    "PIN",
]
NO_SECRET = [
    "PWD",
    "OLDPWD",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "GIT_ASKPASS",
    "XAUTHORITY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "sshkey",
    "KEY_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "CREDENTIALS_DIRECTORY",
    "PASSWORD_STORE_DIR",
    "SSLKEYLOGFILE",
    "AUTH_TYPE",
    "PASS_RATE",
    "KEYBOARD",
    "MONKEY_PATCH",
    "HOTKEY",
    "COMPASS",
    "PASSENGERS",
    "GIT_AUTHOR_NAME",
    "PATH",
    "PATIENCE",
    "public_key",
    "sort_key",
    "energy_key",
    "forces_key",
    "key",
    "num_key_value_heads",
    "TOKENIZERS_PARALLELISM",
    "--max-tokens",
    "MAX_NEW_TOKENS",
    "eos_token",
    "pad_token_id",
    "tokens_per_second",
    "time_to_first_token",
    "tokenizer",
    "tokens",
    "session",
    "pin",
    "I_MPI_PIN",
    "pin_memory",
    "DESKTOP_SESSION",
    "TLS_CERT_PEM",
    "WEBHOOK_PORT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CONN_TIMEOUT",
    "max_conn",
    "sas",
]


@pytest.mark.parametrize("name", SECRET)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", NO_SECRET)
def test_what_only_looks_like_the_name_of_a_secret_is_none(name: str) -> None:
    assert not is_secret_name(name)


def test_names_among_variables_are_sorted() -> None:
    assert secret_names({"PATH": "", "MYTOKEN": "", "HF_TOKEN": ""}) == ("HF_TOKEN", "MYTOKEN")


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("bench.env.HF_TOKEN=hf_x=1", "bench.env.HF_TOKEN=***"),
        ("--override=bench.env.HF_TOKEN=hf_x", "--override=bench.env.HF_TOKEN=***"),
        ("*.env.MYTOKEN=two words", "*.env.MYTOKEN=***"),
        ("bench.env.MYTOKEN.x.y=z", "bench.env.MYTOKEN.x.y=***"),
        ("a-token-bench.max_duration=5", "a-token-bench.max_duration=5"),
        ('"a.b".env."MYTOKEN"=x', '"a.b".env."MYTOKEN"=***'),
        ("bench.env={HF_TOKEN: x, MODE: fast}", "bench.env={HF_TOKEN: ***, MODE: fast}"),
        ('bench={"env": {"HF_TOKEN": "x"}}', 'bench={"env": {"HF_TOKEN": "***"}}'),
        ("--db=postgresql://me:x@host/db", "--db=postgresql://***@host/db"),
        ("bench.env.MODE=fast", "bench.env.MODE=fast"),
        ("--base=/a=b", "--base=/a=b"),
    ],
)
def test_a_command_line_keeps_all_but_the_values_of_secrets(word: str, kept: str) -> None:
    assert mask_argument(word) == kept


def test_what_stands_under_a_secret_name_is_found_in_any_data() -> None:
    data = {
        "env": {"MYTOKEN": "in-a-mapping", "MODE": "fast"},
        "argv": {"--api-key": "by-its-option", "--max-tokens": "512"},
        "command": ["curl", "--password", "the-next-word", "--token=in-one-word", "PGPASSWORD=assigned x"],
        "pip": {"index-url": "https://user:in%2Fa%20url@host/simple"},
        "line": "prog --password in-a-line --out file",
    }
    assert set(values_in(data)) == {
        *("in-a-mapping", "by-its-option", "the-next-word", "in-one-word", "assigned", "assigned x"),
        *("in/a url", "in-a-line"),
    }


def test_a_variable_with_the_path_of_what_exists_is_no_secret(tmp_path: Path) -> None:
    assert values_in_environment({"SSH_KEY": str(tmp_path), "MY_KEY": "/none/such/"}) == ["/none/such/"]


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("https://a-user:a-password@host/", ["a-password"]),
        ("https://a-token@host/", ["a-token"]),
        ("ssh://a-user@host/", []),
        ("postgresql://a-user:a%2Fpassword@host/db", ["a/password"]),
    ],
)
def test_a_url_has_a_password_or_a_token(url: str, values: list[str]) -> None:
    assert values_in_environment({"A_URL": url}) == values


VALUE = "pa\"ss/wo'rd é&1"


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        json.dumps(json.dumps(VALUE)),
        repr(VALUE),
        quote(VALUE),
        quote(VALUE, safe=""),
        shlex.quote(VALUE),
        f"https://user:{quote(VALUE, safe='')}@host/",
    ],
)
def test_a_known_value_is_masked_as_programs_write_it(written: str) -> None:
    masked = Masker([VALUE]).mask_text(f"before {written} after")
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    assert MASK in masked
    assert "wo" not in masked
    assert Masker([VALUE]).mask_bytes(f"before {written} after".encode()).decode() == masked


@pytest.mark.parametrize("before", ["", "u:", "us:", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xyz"])
def test_a_known_value_is_masked_in_base64(before: str, after: str) -> None:
    word = base64.b64encode(f"{before}s3cr3t-of-mine{after}".encode()).decode()
    masked = Masker(["s3cr3t-of-mine"]).mask_text(f"Authorization: Basic {word}")
    assert MASK in masked
    # Of the 14 bytes, what is left is a part of one at either end.
    assert len(masked.partition("Basic ")[2]) - len(MASK) <= len(word) - (14 - 2) * 8 // 6


def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEowIBAAKC1\nQsomemorelines2\n-----END KEY-----\n"
    masker = Masker([key])
    assert masker.mask_text("MIIEowIBAAKC1\n x Qsomemorelines2") == f"{MASK}\n x {MASK}"
    assert "MIIE" not in masker.mask_text(json.dumps(key))


@pytest.mark.parametrize(
    "value", ["", "1", "true", "abc", "x" * (LEAST_CHARACTERS - 1), "12345678", "-1.5e-300", "postgres"]
)
def test_what_would_hide_too_much_is_not_looked_for(value: str) -> None:
    text = f"a record of 12345678 and -1.5e-300 with 1 true abc {'x' * (LEAST_CHARACTERS - 1)} postgres"
    assert Masker([value]).mask_text(text) == text


def test_a_secret_that_holds_another_is_masked_whole() -> None:
    assert Masker(["a-secret", "a-secret-and-more"]).mask_text("a-secret-and-more") == MASK


def test_plain_data_keeps_its_shape() -> None:
    learn(["s3cr3t-of-mine"])
    data = {"argv": ("--token", "abc", "--n", "1"), "env": {"MYPWD": "x", "A": 1}, "s3cr3t-of-mine": ["s3cr3t-of-mine"]}
    assert mask_data(data) == {**{key: data[key] for key in ("argv", "env")}, MASK: [MASK]}
    assert mask_settings(data) == {
        "argv": ("--token", MASK, "--n", "1"),
        "env": {"MYPWD": MASK, "A": 1},
        MASK: [MASK],
    }


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ("fetching https://user:se%40cret@b.example/simple/", "fetching https://***@b.example/simple/"),
        ("git+ssh://token@c.example/x, mail a@b.example", "git+ssh://***@c.example/x, mail a@b.example"),
        ("https://u:p@ss@host/", "https://***@host/"),
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
        ("docker://ubuntu@sha256:0123", "docker://ubuntu@sha256:0123"),
        ("http://127.0.0.1:@port/v1", "http://127.0.0.1:@port/v1"),
        ("http://u:p@port/v1", "http://***@port/v1"),
        ("http://u:@port.example", "http://***@port.example"),
        ("http://host/?mail=a@b", "http://host/?mail=a@b"),
    ],
)
def test_credentials_are_masked_in_every_url(said: str, masked: str) -> None:
    assert mask(said) == masked
    assert Masker(()).mask_bytes(said.encode()).decode() == masked


def test_assignments_are_masked_in_foreign_records() -> None:
    record = '{"env": {"HF_TOKEN": "abc"}, "token": 5, "cmd": "A_KEY=xyz B=1 --max-tokens=5"}'
    masked = '{"env": {"HF_TOKEN": "***"}, "token": 5, "cmd": "A_KEY=*** B=1 --max-tokens=5"}'
    assert mask_assignments(record) == (masked, 2)


def test_a_machine_learns_only_what_it_is_given() -> None:
    learn(["s3cr3t-of-mine", "another-one"])
    assert secrets_within(["run", "--x=s3cr3t-of-mine"], {"env": {"A": "b"}}) == ["s3cr3t-of-mine"]


def test_the_end_of_output_that_may_begin_a_secret_is_held_back() -> None:
    masker = Masker(["s3cr3t-of-mine"])
    assert [masker.held_back(data) for data in (b"text s3cr3t-of-min", b"text s", b"text", b"")] == [14 - 1, 1, 0, 0]


def test_no_error_quotes_a_secret() -> None:
    learn(["s3cr3t-of-mine"])
    assert str(ConfigError(Problem("here", "a.b", "expected a number, got 's3cr3t-of-mine'"))) == (
        "here: a.b: expected a number, got '***'"
    )
