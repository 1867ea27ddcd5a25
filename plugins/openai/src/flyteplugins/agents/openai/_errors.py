"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

import agents.exceptions as sdk

import openai
from flyteplugins.agents.core import ErrorClass
from openai import _exceptions as openai_errors

__all__ = ["ERROR_CLASSES", "NAMED_CLASSES", "classify"]

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # the client retries these by itself (max_retries), inside the leaf
    openai.RateLimitError: ErrorClass.RETRY_IN_PLACE,
    openai.InternalServerError: ErrorClass.RETRY_IN_PLACE,
    openai.ConflictError: ErrorClass.RETRY_IN_PLACE,
    openai.APIConnectionError: ErrorClass.RETRY_IN_PLACE,
    openai.APITimeoutError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better
    openai.APIError: ErrorClass.RETRY_ATTEMPT,
    openai.APIStatusError: ErrorClass.RETRY_ATTEMPT,
    openai.APIResponseValidationError: ErrorClass.RETRY_ATTEMPT,
    openai.WebSocketConnectionClosedError: ErrorClass.RETRY_ATTEMPT,
    openai.WebSocketQueueFullError: ErrorClass.RETRY_ATTEMPT,
    sdk.ModelTimeoutError: ErrorClass.RETRY_ATTEMPT,
    sdk.ToolTimeoutError: ErrorClass.RETRY_ATTEMPT,
    sdk.MCPToolCancellationError: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong key or request, a limit, a refusal, or an answer that is on record
    openai.OpenAIError: ErrorClass.FAIL_NOW,  # by itself: no key is configured
    openai.AuthenticationError: ErrorClass.FAIL_NOW,
    openai.OAuthError: ErrorClass.FAIL_NOW,
    openai_errors.SubjectTokenProviderError: ErrorClass.FAIL_NOW,
    openai.PermissionDeniedError: ErrorClass.FAIL_NOW,
    openai.BadRequestError: ErrorClass.FAIL_NOW,
    openai.NotFoundError: ErrorClass.FAIL_NOW,
    openai.UnprocessableEntityError: ErrorClass.FAIL_NOW,
    openai.LengthFinishReasonError: ErrorClass.FAIL_NOW,
    openai.ContentFilterFinishReasonError: ErrorClass.FAIL_NOW,
    openai.InvalidWebhookSignatureError: ErrorClass.FAIL_NOW,
    sdk.AgentsException: ErrorClass.FAIL_NOW,
    sdk.MaxTurnsExceeded: ErrorClass.FAIL_NOW,
    sdk.ModelBehaviorError: ErrorClass.FAIL_NOW,
    sdk.ModelRefusalError: ErrorClass.FAIL_NOW,
    sdk.UserError: ErrorClass.FAIL_NOW,
    sdk.InputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.OutputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.ToolInputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.ToolOutputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
}
"""What the exception classes of `openai` and `agents` mean that an agent run can raise."""


_SANDBOX = "agents.sandbox.errors"

NAMED_CLASSES: dict[str, ErrorClass] = {
    **dict.fromkeys(
        (
            # a connection, a machine, a file system: another attempt may go better
            "agents.models.openai_responses.ResponsesWebSocketError",
            "agents.voice.exceptions.STTWebsocketConnectionError",
            "openai.lib.responses_websocket._session.ResponsesWebSocketBufferError",
            "openai.lib.responses_websocket._session.ResponsesWebSocketError",
            "openai.lib.beta.agents._files.AgentFilePreparationError",
            "openai.lib.beta.agents._files.AgentFileStagingError",
            "openai.lib.beta.agents._result.AgentTurnResultError",
            "openai.lib.browser.BrowserError",
            "openai.lib.browser.BrowserCancelledError",
            "openai.lib.computer.ComputerUseError",
            "openai.lib.decisions_tool_runner.DecisionsToolRunnerCancelledError",
            "openai.lib.decisions_tool_runner.DecisionsToolRunnerError",
            "openai.lib.responses_tool_runner.ToolRunnerCancelledError",
            "openai.lib.responses_tool_runner.ToolRunnerError",
            *(
                f"{_SANDBOX}.{name}"
                for name in (
                    "SandboxError", "SandboxRuntimeError", "ExecFailureError", "ExecNonZeroError", "ExecTimeoutError",
                    "ExecTransportError", "ExposedPortUnavailableError", "PtySessionNotFoundError", "ArtifactError",
                    "GitArtifactError", "GitCloneError", "GitCopyError", "MountArtifactError", "MountCommandError",
                    "SnapshotError", "SnapshotPersistError", "SnapshotRestoreError", "WorkspaceIOError",
                    "WorkspaceArchiveReadError", "WorkspaceArchiveWriteError", "WorkspaceReadNotFoundError",
                    "WorkspaceRootNotFoundError", "WorkspaceStartError", "WorkspaceStopError", "ApplyPatchFileNotFoundError",
                )
            ),
        ),
        ErrorClass.RETRY_ATTEMPT,
    ),
    **dict.fromkeys(
        (
            # something that the program or its image has to be changed for, or an answer that is on record
            "openai._extras._common.MissingDependencyError",
            "openai._legacy_response.MissingStreamClassError",
            "openai._response.MissingStreamClassError",
            "openai._response.StreamAlreadyConsumed",
            "openai.lib._old_api.APIRemovedInV1",
            "openai.lib.azure.MutuallyExclusiveAuthError",
            "openai.lib.beta.agents._result.AgentOutputParseError",
            "agents.sandbox.session.archive_extraction.ArchiveResourceLimitError",
            "agents.sandbox.session.archive_extraction.UnsafeZipMemberError",
            "agents.sandbox.session.dependencies.DependenciesBindingError",
            "agents.sandbox.session.dependencies.DependenciesError",
            "agents.sandbox.session.dependencies.DependenciesMissingDependencyError",
            "agents.sandbox.util.tar_utils.UnsafeTarMemberError",
            *(
                f"{_SANDBOX}.{name}"
                for name in (
                    "ConfigurationError", "ApplyPatchError", "ApplyPatchDecodeError", "ApplyPatchDiffError",
                    "ApplyPatchPathError", "InvalidCompressionSchemeError", "InvalidManifestPathError", "SkillsConfigError",
                    "GitMissingInImageError", "GitSubpathError", "LocalArtifactError", "LocalChecksumError",
                    "LocalDirReadError", "LocalFileReadError", "MountConfigError", "MountToolMissingError",
                    "SnapshotNotRestorableError", "WorkspaceWriteTypeError",
                )
            ),
            # a script of the SDK's own test kit that does not fit
            "agents.realtime.testing.RealtimeScriptError",
            "agents.realtime.testing.UnconsumedRealtimeSteps",
            "agents.realtime.testing.UnexpectedRealtimeSend",
            "agents.testing.model.InvalidModelStep",
            "agents.testing.model.ModelScriptError",
            "agents.testing.model.UnconsumedModelSteps",
            "agents.testing.model.UnexpectedModelCall",
            "agents.testing.sandbox.InvalidSandboxStep",
            "agents.testing.sandbox.SandboxCallMatcherError",
            "agents.testing.sandbox.SandboxScriptError",
            "agents.testing.sandbox.UnconsumedSandboxSteps",
            "agents.testing.sandbox.UnexpectedSandboxCall",
            "agents.voice.testing.UnconsumedVoiceSteps",
            "agents.voice.testing.UnexpectedVoiceCall",
            "agents.voice.testing.VoiceScriptError",
        ),
        ErrorClass.FAIL_NOW,
    ),
}  # fmt: skip
"""The same for classes of modules that a run may never import, by `module.Class`."""


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's, or only says which tool raised, what it was raised
            from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, openai.RateLimitError) and current.code == "insufficient_quota":
            return ErrorClass.FAIL_NOW  # the account has no credit: waiting does not help
        if not (isinstance(current, sdk.UserError) and current.__cause__ is not None):
            for base in type(current).__mro__:
                found = ERROR_CLASSES.get(base) or NAMED_CLASSES.get(f"{base.__module__}.{base.__qualname__}")
                if found is not None:
                    return found
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT
