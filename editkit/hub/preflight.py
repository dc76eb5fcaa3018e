"""Before anything heavy: may this person publish this edit under this name, and how much is it?

    preflight("no-swear", base=Base("meta-llama/Llama-3.2-1B-Instruct", "9213176..."), out=Path("no-swear"))
    Preflight(repo="alice/no-swear", user="alice", exists=False, head=None, private=True, base_on_hub=True,
              license="llama3.2", gated=True, bytes=2489103211, notes=("...",))

Before there is anything to publish, ``like`` stands in for ``out``: the unedited model is as large. Everything here
only reads. What cannot be checked on a server that lacks a route becomes a note, never a silent pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editkit.checkpoints.base_card import card_text, front_matter
from editkit.checkpoints.files import printable, walk
from editkit.checkpoints.unshipped import SERVERS_OWN
from editkit.edit import Base
from editkit.errors import EditkitError, UsageError
from editkit.hub import secrets
from editkit.hub.remote import ask, connect, listing, read_bytes
from editkit.writing import manifest
from editkit.writing.plan import KEPT

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LARGEST_CARD = 1 << 20
"""Bytes of a card that are read for its front matter."""
_NOTICES = re.compile(r"(LICEN[SC]E|NOTICE|USE_POLICY|COPYING)[^/]*", re.IGNORECASE)


@dataclass(frozen=True)
class Allow:
    """What somebody publishes in spite of, knowing it.

    Args:
        unmet: a verdict that was not met.
        gated: a base that is gated or private, openly; the licence must permit it.
        secrets: files that look like secrets, or are no part of a checkpoint.
    """

    unmet: bool = False
    gated: bool = False
    secrets: bool = False


@dataclass(frozen=True)
class Preflight:
    """A push that may go ahead: every reason against it was raised as an error instead.

    Args:
        repo: ``owner/name``.
        head: the commit the repository is at; None when it does not exist or is empty.
        private: what the repository is, or will be when it is created.
        base_on_hub: the base is on the same server, so its unchanged files can be copied there.
        license: what the base's card says; None when it says nothing or is not at hand.
        gated: the base's files need consent, or the base is private.
        bytes: of the files in ``out``, or before there are any, of the model they will be made from.
        notes: what the person should know, one sentence each.
    """

    repo: str
    user: str
    exists: bool
    head: str | None
    private: bool
    base_on_hub: bool
    license: str | None
    gated: bool
    bytes: int | None
    notes: tuple[str, ...] = ()


def preflight(
    repo: str,
    *,
    base: Base | None,
    out: Path | None = None,
    like: Path | None = None,
    public: bool = False,
    create_pr: bool = False,
    dry_run: bool = False,
    allow: Allow = Allow(),
    api: HfApi | None = None,
) -> Preflight:
    """Check that an edit of ``base`` may be pushed to ``repo``, by asking only.

    Args:
        repo: ``owner/name``, or ``name`` under the token's own account.
        base: the unedited model; its licence and gating bind the edit. None: not known yet, not checked.
        out: the finished checkpoint, if there is one already; its size and its licence are then checked too, and it is
            searched for secrets.
        like: where there is no ``out`` yet, the unedited model's directory.
        public: create the repository public. The default is private.
        create_pr: propose the edit as a pull request to a repository that exists.
        dry_run: nothing will be sent: without a token all that needs none is checked, and a note says what was not.
        allow: what to publish in spite of.
        api: the Hub to ask; default: the one that huggingface_hub is set to, with the stored token.

    Raises:
        EditkitError: naming the first thing in the way.
    """
    api = connect(api)
    who = _NOBODY if dry_run and not api.token else _whoami(api)
    name = _full_name(repo, who)
    target = _target(api, name, who, public=public, create_pr=create_pr)
    terms = _base_terms(api, base, out=out, like=like)
    _check_terms(terms, base, public=public, allow=allow)
    if out is not None:
        _check_license(out, terms.license)
        if terms.on_hub and base is not None and manifest.read(out).form == "checkpoint":
            _check_notices(api, base, out)
        if not allow.secrets:
            _check_secrets(out)
    return Preflight(
        repo=name,
        user=who["name"],
        exists=target.exists,
        head=target.head,
        private=target.private,
        base_on_hub=terms.on_hub,
        license=terms.license,
        gated=terms.restriction is not None,
        bytes=_size(out or like),
        notes=(*target.notes, *terms.notes),
    )


_UNASKED = (
    "No Hub token: whether you may write there was not asked, and a private repository looks like none. "
    "To push, log in with `hf auth login` or set HF_TOKEN."
)


@dataclass(frozen=True)
class _Target:
    exists: bool
    private: bool
    head: str | None = None
    notes: tuple[str, ...] = ()


_NOBODY: dict[str, Any] = {"name": ""}
"""Whoever has no token."""


def _whoami(api: HfApi) -> dict[str, Any]:
    if not api.token:
        raise EditkitError(
            "No Hub token found: log in with `hf auth login`, or set HF_TOKEN to a token that may write."
        )
    who = ask(api, "Logging in to the Hub", api.whoami)
    if _role(who) == "read":
        raise EditkitError(
            f"The Hub token of {printable(str(who.get('name')))} may only read. Make one with write permission "
            "(Settings, Access Tokens), then `hf auth login`."
        )
    return who


def _role(who: dict[str, Any]) -> str | None:
    return ((who.get("auth") or {}).get("accessToken") or {}).get("role")


def _full_name(repo: str, who: dict[str, Any]) -> str:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if "/" not in repo and not who["name"]:
        raise UsageError(f"{printable(repo)!r}: without a Hub token the owner is not known: give owner/name.")
    name = repo if "/" in repo else f"{who['name']}/{repo}"
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UsageError(
            f"{printable(repo)!r} is no repository name: expected owner/name of letters, digits, '-', '_' and '.', "
            "at most 96 characters, not ending in .git and without '--' or '..'."
        ) from None
    return name


def _target(api: HfApi, name: str, who: dict[str, Any], *, public: bool, create_pr: bool) -> _Target:
    """The repository as it is, if this person may publish there."""
    info = _info_or_none(api, name)
    if info is None:
        if create_pr:
            raise EditkitError(f"{name}: no such repository, so there is nothing to open a pull request on.")
        notes = (_UNASKED,) if who is _NOBODY else _check_namespace(name.split("/")[0], who)
        return _Target(exists=False, private=not public, notes=notes)
    notes = (_UNASKED,) if who is _NOBODY else () if create_pr else _check_write(api, name)
    private = bool(info.private)
    if not create_pr and private == public:
        remedy = (
            "Change it on its settings page, or drop --public." if private else "Pass --public, or choose a new name."
        )
        states = ("private", "public") if private else ("public", "private")
        raise EditkitError(f"{name} exists and is {states[0]}, but this push is to be {states[1]}. {remedy}")
    there = listing(api, name, None)
    made_with = {"README.md", *SERVERS_OWN}  # what the Hub's own "new model" page puts there, beside a licence
    strangers = sorted(path for path in there if path not in made_with and not _NOTICES.fullmatch(path))
    if strangers and manifest.NAME not in there and not create_pr:
        raise EditkitError(
            f"{name} holds files that editkit did not put there ({printable(', '.join(strangers[:3]))}"
            f"{', ...' if len(strangers) > 3 else ''}): a push would replace them. "
            "Push to a new name, or propose the edit with --create-pr."
        )
    return _Target(exists=True, private=private, head=info.sha, notes=notes)


def _info_or_none(api: HfApi, name: str, revision: str | None = None) -> Any:
    from huggingface_hub import errors as hub

    def call() -> Any:
        try:
            return api.model_info(name, revision=revision)
        except hub.GatedRepoError:
            raise
        except hub.RepositoryNotFoundError:
            return None

    return ask(api, name, call)


def _check_namespace(namespace: str, who: dict[str, Any]) -> tuple[str, ...]:
    roles = {org.get("name"): org.get("roleInOrg") for org in who.get("orgs") or []}
    if namespace != who["name"] and namespace not in roles:
        known = ", ".join(printable(str(name)) for name in (who["name"], *sorted(roles)))
        raise EditkitError(f"{printable(namespace)}: you may not create repositories there. Your names are: {known}.")
    if roles.get(namespace) == "read":
        raise EditkitError(f"{printable(namespace)}: your role there is to read. Ask its admins for write permission.")
    if _role(who) == "fineGrained":
        return (f"The token is fine-grained: only the push can tell whether it may write to {printable(namespace)}.",)
    return ()


def _check_write(api: HfApi, name: str) -> tuple[str, ...]:
    from huggingface_hub import errors as hub

    def call() -> tuple[str, ...]:
        try:
            api.auth_check(name, write=True)
        except hub.RepositoryNotFoundError:
            raise
        except hub.HfHubHTTPError as error:
            if error.response.status_code not in (404, 405):
                raise
            return ("This server cannot say beforehand whether the token may write; the push itself will tell.",)
        return ()

    return ask(api, f"{name}: asking for write permission", call)


@dataclass(frozen=True)
class _Terms:
    """What binds an edit of the base: every licence that its card names, and whether it is gated or private."""

    on_hub: bool = False
    license: str | None = None
    licenses: tuple[str, ...] = ()
    restriction: str | None = None
    notes: tuple[str, ...] = ()


def _base_terms(api: HfApi, base: Base | None, *, out: Path | None, like: Path | None) -> _Terms:
    if base is None:
        return _Terms()
    name = printable(base.model)
    is_directory = base.revision is None or base.revision.startswith("sha256:")
    info = None if is_directory else _info_or_none(api, base.model, base.revision)
    if info is None:
        text = card_text(out, KEPT + "README.md") if out else card_text(like) if like else ""
        license, licenses = _licenses(front_matter(text))
        known = f"its licence is the {license} of its own card" if license else "its licence was not checked"
        notes = (f"The base {name} is not on this server: {known}, nothing is copied.",)
        return _Terms(False, license, licenses, notes=notes)
    license, licenses = _licenses(info.card_data.to_dict() if info.card_data else _front_matter_there(api, base))
    restriction = "gated" if info.gated else "private" if info.private else None
    silent = () if license else (f"The card of {name} names no licence: check that you may share an edit of it.",)
    return _Terms(True, license, licenses, restriction, silent)


def _front_matter_there(api: HfApi, base: Base) -> dict[str, Any]:
    """The top of the base's card where the server does not tell it: from the card itself."""
    card = listing(api, base.model, base.revision).get("README.md")
    if card is None:
        return {}
    raw = read_bytes(api, base.model, base.revision or "main", card.path, 0, min(card.size, LARGEST_CARD))
    return front_matter(raw.decode("utf-8", "replace"))


def _licenses(card: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The licence, where a card names one; and every name that it has for it."""
    named = card.get("license")
    listed = named if isinstance(named, list) else [named]
    words = [word for word in (*listed, card.get("license_name")) if isinstance(word, str) and word.strip()]
    return named if isinstance(named, str) and named.strip() else None, tuple(words)


def _check_terms(terms: _Terms, base: Base | None, *, public: bool, allow: Allow) -> None:
    """Refuse to publish openly what is gated, private, or licensed without derivatives."""
    if base is None or not public:
        return
    if terms.restriction and not allow.gated:
        raise EditkitError(
            f"{base.model} is {terms.restriction}, and a public edit would give its weights to "
            "everybody. Push privately (the default), or pass --allow-gated if the licence permits it."
        )
    for license in terms.licenses:
        if "nd" in re.split(r"[^a-z0-9]+", license.lower()):
            name = printable(base.model)
            raise EditkitError(f"{name}: the licence {printable(license)} permits no derivatives. Push privately.")


def _check_secrets(out: Path) -> None:
    lines = secrets.found(out, manifest.read(out).files)
    if lines:
        more = f"\n  and {len(lines) - 20} more" if len(lines) > 20 else ""
        shown = "".join(f"\n  {line}" for line in lines[:20])
        raise EditkitError(
            f"{printable(str(out))} holds what should not be published:{shown}{more}\n"
            "Take it out of the base and make the edit again. If you know that it is harmless, pass --allow-secrets."
        )


def _size(directory: Path | None) -> int | None:
    return None if directory is None else sum((directory / name).stat().st_size for name in walk(directory))


def _check_license(out: Path, license: str | None) -> None:
    """The card must carry the base's licence on."""
    from huggingface_hub import ModelCard

    card = out / "README.md"
    if not card.is_file() or license is None:
        return
    try:
        said = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=False).data.to_dict()
    except (ValueError, TypeError) as error:
        raise EditkitError(f"README.md: its front matter cannot be read ({printable(str(error))}).") from error
    own = said.get("license")
    if own != license and (own, said.get("license_name")) != ("other", license):  # an id that is not known here
        raise EditkitError(
            f"README.md says licence {printable(str(own or 'none'))}, the base is under {printable(license)}. "
            "An edit carries its base's licence: render the card again with `editkit card`."
        )


def _check_notices(api: HfApi, base: Base, out: Path) -> None:
    """Licence texts and notices of the base travel with the edit."""
    there = listing(api, base.model, base.revision)
    absent = [path for path in sorted(there) if _NOTICES.fullmatch(path) and not (out / path).is_file()]
    if absent:
        raise EditkitError(
            f"{out}: {printable(', '.join(absent))} of {base.model} is missing. A copy of the model must carry its "
            "licence texts and notices: copy them into the directory, or bake again."
        )
