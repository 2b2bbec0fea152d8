"""Makes the user data with which machines join the cluster: a template, and credentials for each machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cloudgraft.joining.claims import JoinPlan, NewMachine, keep_trying
from cloudgraft.joining.template import Mistake, TemplateError, UserDataTemplate
from cloudgraft.joining.tokens import Token, Tokens, public_key_hashes
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.types import Taint

_EXAMPLE: Final = Token(id="abcdef", secret="0123456789abcdef")  # noqa: S106 - nobody's


class UserDataMaker:
    """Makes the user data of machines, by the plans of their groups. A group without a plan gets none."""

    def __init__(
        self, plans: Mapping[str, JoinPlan], *, cluster: str, tokens: Tokens | None = None, ca_cert: str = ""
    ) -> None:
        """``plans`` are by group; ``ca_cert`` is for those that have none.

        Raises TemplateError with the mistakes of all templates, found by rendering each with examples.
        """
        self._cluster = cluster
        self._tokens = tokens
        self._ca_cert = ca_cert
        self._keep_trying = keep_trying()
        self._plans = dict(plans)
        self._templates: dict[tuple[str, str], UserDataTemplate] = {}
        mistakes: list[Mistake] = []
        for group, plan in self._plans.items():
            try:
                mistakes += self._checked(group, plan)
            except TemplateError as error:
                mistakes += error.mistakes
            except InvalidArgumentError as error:  # such as an authority that is none
                mistakes.append(Mistake(file=plan.file, line=0, message=error.message))
        if mistakes:
            raise TemplateError(mistakes)

    async def make(self, machine: NewMachine) -> str:
        """The user data of a machine, with its own credentials. The same text for a retry of the same name.

        Raises CloudgraftError before any call to the cloud; its class decides whether it is retried.
        """
        plan = self._plans.get(machine.group)
        if plan is None:
            return ""
        template = self._template(plan)
        # First with an example of a token, which is as long as any: user data that is too large needs no real one.
        self._check_size(machine, template.render(self._variables(machine, plan, _EXAMPLE)))
        token = await self._mint(machine.name, plan) if self._mints(plan) else None
        return template.render(self._variables(machine, plan, token))

    async def settle(self, name: str) -> None:
        """Revokes the credentials of a machine that has joined, failed, or is not wanted any more."""
        if self._tokens is None:
            return
        if self._tokens.has_minted(name) or any(self._mints(plan) for plan in self._plans.values()):
            await self._tokens.settle(name)

    def _mints(self, plan: JoinPlan) -> bool:
        """Whether each of its machines gets a token. A permanent one among the values replaces them."""
        return self._tokens is not None and "token" not in plan.values and self._template(plan).needs_token

    async def _mint(self, name: str, plan: JoinPlan) -> Token | None:
        if self._tokens is None:
            return None
        return await self._tokens.mint(name, ttl=plan.token_ttl, groups=plan.token_groups)

    def _template(self, plan: JoinPlan) -> UserDataTemplate:
        """Compiles a template once: many groups share a few templates."""
        key = (plan.file, plan.template)
        if key not in self._templates:
            self._templates[key] = UserDataTemplate(plan.template, plan.file)
        return self._templates[key]

    def _checked(self, group: str, plan: JoinPlan) -> list[Mistake]:
        """Examples with and without all that a machine may have, to check both branches of most conditions."""
        bare = NewMachine(name="a-machine", group=group, cloud="a-cloud", settings=plan.settings)
        full = replace(
            bare,
            provider_id="example://a-machine",
            labels={"example.com/pool": "a"},
            taints=(Taint(key="example.com/taint", value="a"),),
        )
        token = _EXAMPLE if self._tokens is not None else None
        examples = [self._variables(machine, plan, token) for machine in (bare, full)]
        return list(self._template(plan).mistakes(*examples))

    def _variables(self, machine: NewMachine, plan: JoinPlan, token: Token | None) -> dict[str, Any]:
        """The variables of a template. Unknown ones are left out: a template that uses one cannot work."""
        ca_cert = plan.ca_cert or self._ca_cert
        return {
            "name": machine.name,
            "group": machine.group,
            "cloud": machine.cloud,
            "cluster": self._cluster,
            "provider_id": machine.provider_id,
            "labels": dict(machine.labels),
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in machine.taints],
            "values": plan.values,
            "settings": machine.settings,
            "token_seconds": int(plan.token_ttl.total_seconds()),
            "keep_trying": self._keep_trying,
            **({"server": plan.server} if plan.server else {}),
            **(_authority(ca_cert) if ca_cert else {}),
            **_token(plan.values.get("token"), token),
        }

    def _check_size(self, machine: NewMachine, text: str) -> None:
        size, limit = len(text.encode()), machine.user_data_limit
        if limit is not None and size > limit:
            raise InvalidArgumentError(
                f"the user data of machine {machine.name} is {size} bytes, but cloud {machine.cloud} takes at most "
                f"{limit}: shorten the template, or let the image bring along what is the same for all machines"
            )


def _authority(pem: str) -> dict[str, Any]:
    hashes = public_key_hashes(pem)
    return {"ca_cert": pem, "ca_cert_hashes": hashes, "ca_cert_hash": hashes[0]}


def _token(lasting: Any, minted: Token | None) -> dict[str, str]:
    if isinstance(lasting, str):
        return {"token": lasting}
    return {} if minted is None else {"token": str(minted), "token_id": minted.id, "token_secret": minted.secret}
