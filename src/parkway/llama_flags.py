"""Every flag of llama-server, and what becomes of it here. docs/llama-server.md is made of this table.

A line of it: names, `!` before names that switch the same thing off, what the flag takes, its variables; after `=` the
values that ask for nothing. Knows no parser.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from parkway import llama_texts as texts

Fate = Literal["honoured", "no effect", "refused"]


@dataclass(frozen=True, slots=True)
class LlamaFlag:
    """`value`: what it takes, "" where it is a switch, whose texts are on and off. `field`: of the settings.

    `read` turns llama-server's text into the setting's; None: as if it had not been given. Raises ValueError.
    """

    names: tuple[str, ...]
    off_names: tuple[str, ...]
    value: str
    variables: tuple[str, ...]
    neutral: tuple[str, ...]
    fate: Fate
    why: str = ""
    field: str = ""
    read: texts.Read = str

    def asks_for_nothing(self, text: str) -> bool:
        return any(_same(text, each) for each in self.neutral)


_HONOURED: tuple[tuple[str, str, texts.Read], ...] = (
    ("", "-h --help --usage", str),
    ("", "--version", str),
    ("model", "-m --model FILE LLAMA_ARG_MODEL", str),
    ("hf_repo", "-hf -hfr --hf-repo OWNER/NAME[:QUANT] LLAMA_ARG_HF_REPO", str),
    ("hf_repo", "-mu --model-url URL LLAMA_ARG_MODEL_URL", texts.on_the_hub),
    ("hf_file", "-hff --hf-file FILE LLAMA_ARG_HF_FILE", str),
    ("hf_token", "-hft --hf-token TOKEN HF_TOKEN", str),
    ("offline", "--offline LLAMA_ARG_OFFLINE LLAMA_OFFLINE", str),
    ("ctx_size", "-c --ctx-size N LLAMA_ARG_CTX_SIZE", str),
    ("parallel", "-np --parallel N LLAMA_ARG_N_PARALLEL", texts.unless("-1")),
    ("batch_size", "-b --batch-size N LLAMA_ARG_BATCH", str),
    ("threads", "-t --threads N LLAMA_ARG_THREADS", texts.unless("-1")),
    ("device", "-dev --device NAME LLAMA_ARG_DEVICE", texts.device),
    ("device", "-ngl --gpu-layers --n-gpu-layers N LLAMA_ARG_N_GPU_LAYERS", texts.layers),
    ("log", "-v --verbose --log-verbose", texts.loud),
    ("log", "-lv --verbosity --log-verbosity N LLAMA_ARG_LOG_VERBOSITY LLAMA_LOG_VERBOSITY", texts.loud),
    ("log", "--log-disable", texts.quiet),
    ("log_format", "--log-jsonl ! --no-log-jsonl LLAMA_ARG_LOG_JSONL", texts.format_of),
    ("context_shift", "--context-shift ! --no-context-shift LLAMA_ARG_CONTEXT_SHIFT", str),
    ("n_keep", "--keep N", str),
    ("preempt_ram", "--preempt-ram N LLAMA_ARG_PREEMPT_RAM", str),
    ("preempt_async", "--preempt-async ! --no-preempt-async LLAMA_ARG_PREEMPT_ASYNC", str),
    ("host", "--host HOST LLAMA_ARG_HOST", str),
    ("port", "--port PORT LLAMA_ARG_PORT", str),
    ("alias", "-a --alias NAME LLAMA_ARG_ALIAS", str),
    ("api_key", "--api-key KEY LLAMA_API_KEY", str),
    ("api_key", "--api-key-file FILE LLAMA_ARG_API_KEY_FILE", texts.keys),
    ("cors_origins", "--cors-origins ORIGINS LLAMA_ARG_CORS_ORIGINS", str),
    ("slots", "--slots ! --no-slots LLAMA_ARG_ENDPOINT_SLOTS", str),
    ("sse_ping_interval", "--sse-ping-interval N LLAMA_ARG_SSE_PING_INTERVAL", str),
    ("pooling", "--pooling KIND LLAMA_ARG_POOLING", str),
    ("sleep_idle_seconds", "--sleep-idle-seconds N", str),
    ("chat_template", "--chat-template JINJA LLAMA_ARG_CHAT_TEMPLATE", texts.template),
    ("chat_template", "--chat-template-file FILE LLAMA_ARG_CHAT_TEMPLATE_FILE", texts.contents),
    ("chat_template_kwargs", "--chat-template-kwargs JSON LLAMA_ARG_CHAT_TEMPLATE_KWARGS", str),
    ("reasoning", "-rea --reasoning on|off|auto LLAMA_ARG_REASONING", str),
    ("reasoning", "--reasoning-budget N LLAMA_ARG_THINK_BUDGET", texts.budget),
    ("reasoning_effort", "--reasoning-effort LEVEL LLAMA_ARG_REASONING_EFFORT", texts.unless("default")),
    ("reasoning_format", "--reasoning-format FORMAT LLAMA_ARG_THINK", str),
    ("max_tokens", "-n --predict --n-predict N LLAMA_ARG_N_PREDICT", texts.unless("-1", "-2")),
    ("temperature", "--temp --temperature N LLAMA_ARG_TEMPERATURE", str),
    ("top_k", "--top-k N LLAMA_ARG_TOP_K", texts.whole),
    ("top_p", "--top-p N LLAMA_ARG_TOP_P", str),
    ("min_p", "--min-p N LLAMA_ARG_MIN_P", str),
    ("seed", "-s --seed N", texts.unless("-1")),
    ("repeat_penalty", "--repeat-penalty N LLAMA_ARG_REPEAT_PENALTY", str),
    ("repeat_last_n", "--repeat-last-n N", str),
    ("presence_penalty", "--presence-penalty N LLAMA_ARG_PRESENCE_PENALTY", str),
    ("frequency_penalty", "--frequency-penalty N LLAMA_ARG_FREQUENCY_PENALTY", str),
    ("typical_p", "--typical --typical-p N", str),
    ("top_n_sigma", "--top-nsigma --top-n-sigma N", str),
    ("xtc_probability", "--xtc-probability N", str),
    ("xtc_threshold", "--xtc-threshold N", str),
    ("dynatemp_range", "--dynatemp-range N", str),
    ("dynatemp_exponent", "--dynatemp-exp N", str),
    ("mirostat", "--mirostat N", str),
    ("mirostat_tau", "--mirostat-ent N", str),
    ("mirostat_eta", "--mirostat-lr N", str),
    ("dry_multiplier", "--dry-multiplier N", str),
    ("dry_base", "--dry-base N", str),
    ("dry_allowed_length", "--dry-allowed-length N", str),
    ("dry_penalty_last_n", "--dry-penalty-last-n N", str),
    ("dry_sequence_breakers", "--dry-sequence-breaker TEXT", texts.unescaped),
    ("samplers", "--samplers NAMES", str),
    ("samplers", "--sampler-seq --sampling-seq LETTERS", str),
    ("ignore_eos", "--ignore-eos", str),
    ("cache_prompt", "--cache-prompt ! --no-cache-prompt LLAMA_ARG_CACHE_PROMPT", str),
    ("logit_bias", "-l --logit-bias ID+NUMBER", str),
    ("stop", "-r --reverse-prompt TEXT", texts.unescaped),
    ("grammar", "--grammar GBNF", str),
    ("grammar", "--grammar-file FILE", texts.contents),
    ("json_schema", "-j --json-schema JSON", str),
    ("json_schema", "-jf --json-schema-file FILE", texts.contents),
)

_NO_EFFECT = {
    "answers do not depend on how the work is cut and timed, and that is not tuned by hand": """
-tb --threads-batch N; -C --cpu-mask M; -Cr --cpu-range LO-HI; --cpu-strict 0|1; --prio N; --poll N
-Cb --cpu-mask-batch M; -Crb --cpu-range-batch LO-HI; --cpu-strict-batch 0|1; --prio-batch N; --poll-batch 0|1
-ub --ubatch-size N LLAMA_ARG_UBATCH; -fa --flash-attn [on|off|auto] LLAMA_ARG_FLASH_ATTN
-cb --cont-batching ! -nocb --no-cont-batching LLAMA_ARG_CONT_BATCHING
-bs --backend-sampling LLAMA_ARG_BACKEND_SAMPLING; --op-offload ! --no-op-offload LLAMA_ARG_OP_OFFLOAD
--repack ! -nr --no-repack LLAMA_ARG_REPACK; --no-host LLAMA_ARG_NO_HOST; --warmup ! --no-warmup LLAMA_ARG_WARMUP
--numa TYPE LLAMA_ARG_NUMA; --perf ! --no-perf LLAMA_ARG_PERF; --threads-http N LLAMA_ARG_THREADS_HTTP
-to --timeout N LLAMA_ARG_TIMEOUT; --reuse-port LLAMA_ARG_REUSE_PORT
""",
    "the file is mapped, and the pool is made once, as large as --ctx-size says": """
--mlock LLAMA_ARG_MLOCK; --mmap ! --no-mmap LLAMA_ARG_MMAP; -dio --direct-io ! -ndio --no-direct-io LLAMA_ARG_DIO
-lm --load-mode MODE LLAMA_ARG_LOAD_MODE; -lzm --lazy-mode MODE LLAMA_ARG_LAZY_MODE; --check-tensors
-kvo --kv-offload ! -nkvo --no-kv-offload LLAMA_ARG_KV_OFFLOAD; -dt --defrag-thold N LLAMA_ARG_DEFRAG_THOLD
-fit --fit [on|off] LLAMA_ARG_FIT; -fitt --fit-target MiB LLAMA_ARG_FIT_TARGET; -fitc --fit-ctx N LLAMA_ARG_FIT_CTX
--swa-full LLAMA_ARG_SWA_FULL
""",
    "the beginning of a prompt is found in pages by itself, and only where it is the same token for token": """
--cache-reuse N LLAMA_ARG_CACHE_REUSE; -cram --cache-ram N LLAMA_ARG_CACHE_RAM; -sps --slot-prompt-similarity N
--cache-idle-slots ! --no-cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS
-ctxcp --ctx-checkpoints --swa-checkpoints N LLAMA_ARG_CTX_CHECKPOINTS
-cms --checkpoint-min-step N LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT
""",
    "a draft never changes an answer, and none is used": """
-md --model-draft --spec-draft-model FILE LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT; --spec-default
-hfd -hfrd --hf-repo-draft --spec-draft-hf OWNER/NAME LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO
--spec-type TYPES LLAMA_ARG_SPEC_TYPE; -cd --ctx-size-draft N LLAMA_ARG_CTX_SIZE_DRAFT
-ctkd --cache-type-k-draft --spec-draft-type-k TYPE LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K
-ctvd --cache-type-v-draft --spec-draft-type-v TYPE LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V
-td --threads-draft --spec-draft-threads N; -tbd --threads-batch-draft --spec-draft-threads-batch N
-Cd --cpu-mask-draft --spec-draft-cpu-mask M; -Crd --cpu-range-draft --spec-draft-cpu-range LO-HI
--cpu-strict-draft --spec-draft-cpu-strict 0|1; --prio-draft --spec-draft-prio N; --poll-draft --spec-draft-poll 0|1
-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch M; -Crbd --cpu-range-batch-draft LO-HI
--cpu-strict-batch-draft --spec-draft-cpu-strict-batch 0|1; --prio-batch-draft --spec-draft-prio-batch N
--poll-batch-draft --spec-draft-poll-batch 0|1; -otd --override-tensor-draft --spec-draft-override-tensor PATTERN=TYPE
-cmoed --cpu-moe-draft --spec-draft-cpu-moe LLAMA_ARG_SPEC_DRAFT_CPU_MOE
-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe N LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE
-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl N LLAMA_ARG_N_GPU_LAYERS_DRAFT
-devd --device-draft --spec-draft-device NAMES; --draft-p-split --spec-draft-p-split P LLAMA_ARG_SPEC_DRAFT_P_SPLIT
--draft --draft-n --draft-max N LLAMA_ARG_DRAFT_MAX; --draft-min --draft-n-min N LLAMA_ARG_DRAFT_MIN
--spec-draft-n-max N LLAMA_ARG_SPEC_DRAFT_N_MAX; --spec-draft-n-min N LLAMA_ARG_SPEC_DRAFT_N_MIN
--draft-p-min --spec-draft-p-min P LLAMA_ARG_SPEC_DRAFT_P_MIN; --spec-replace TARGET DRAFT
--spec-draft-sampling KIND LLAMA_ARG_SPEC_DRAFT_SAMPLING
--spec-draft-backend-sampling ! --no-spec-draft-backend-sampling LLAMA_ARG_SPEC_DRAFT_BACKEND_SAMPLING
--spec-ngram-mod-n-min N; --spec-ngram-mod-n-max N; --spec-ngram-mod-n-match N; --spec-ngram-simple-size-n N
--spec-ngram-simple-size-m N; --spec-ngram-simple-min-hits N; --spec-ngram-map-k-size-n N; --spec-ngram-map-k-size-m N
--spec-ngram-map-k-min-hits N; --spec-ngram-map-k4v-size-n N; --spec-ngram-map-k4v-size-m N
--spec-ngram-map-k4v-min-hits N; --spec-ngram-size-n N; --spec-ngram-size-m N; --spec-ngram-min-hits N
-lcs --lookup-cache-static FILE; -lcd --lookup-cache-dynamic FILE
""",
    "only a sampler reads it that must be off here": """
--adaptive-decay N
""",
    "the endpoint is always there, or there is no such page or log": """
--embedding --embeddings LLAMA_ARG_EMBEDDINGS
--metrics LLAMA_ARG_ENDPOINT_METRICS; --props LLAMA_ARG_ENDPOINT_PROPS; --path PATH LLAMA_ARG_STATIC_PATH
--ui --webui ! --no-ui --no-webui LLAMA_ARG_UI LLAMA_ARG_WEBUI; --ui-config --webui-config JSON LLAMA_ARG_UI_CONFIG
--ui-config-file --webui-config-file FILE LLAMA_ARG_UI_CONFIG_FILE; --tags TAGS LLAMA_ARG_TAGS
--log-file FILE LLAMA_ARG_LOG_FILE LLAMA_LOG_FILE; --log-prompts-dir DIR; --verbose-prompt
--log-colors [on|off|auto] LLAMA_ARG_LOG_COLORS LLAMA_LOG_COLORS
--log-prefix ! --no-log-prefix LLAMA_ARG_LOG_PREFIX LLAMA_LOG_PREFIX
--log-timestamps ! --no-log-timestamps LLAMA_ARG_LOG_TIMESTAMPS LLAMA_LOG_TIMESTAMPS
--models-max N LLAMA_ARG_MODELS_MAX; --models-autoload ! --no-models-autoload LLAMA_ARG_MODELS_AUTOLOAD
""",
    "one model of text is served: images, adapters and budgets are refused where they are asked for": """
--mmproj-auto ! --no-mmproj --no-mmproj-auto LLAMA_ARG_MMPROJ_AUTO; -mmdev --mmproj-device NAME MTMD_BACKEND_DEVICE
--mmproj-offload ! --no-mmproj-offload LLAMA_ARG_MMPROJ_OFFLOAD; --image-min-tokens N LLAMA_ARG_IMAGE_MIN_TOKENS
--image-max-tokens N LLAMA_ARG_IMAGE_MAX_TOKENS; --mtmd-batch-max-tokens N LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
--video-fps N LLAMA_ARG_VIDEO_FPS; --video-timestamp-interval N LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL
--video-ffmpeg-dir DIR LLAMA_ARG_VIDEO_FFMPEG_DIR; --media-path DIR; --lora-init-without-apply
--reasoning-budget-message TEXT LLAMA_ARG_THINK_BUDGET_MESSAGE
""",
}

_REFUSED = {
    "the weights are used as they are in the file": """
--lora FILES; --lora-scaled FILES:SCALES; --control-vector FILES; --control-vector-scaled FILES:SCALES
--control-vector-layer-range START END; --override-kv KEY=TYPE:VALUE
-gan --grp-attn-n N LLAMA_ARG_GRP_ATTN_N = 1; -gaw --grp-attn-w N LLAMA_ARG_GRP_ATTN_W
""",
    "positions are turned as the file says": """
--rope-scaling KIND LLAMA_ARG_ROPE_SCALING_TYPE; --rope-scale N LLAMA_ARG_ROPE_SCALE
--rope-freq-base N LLAMA_ARG_ROPE_FREQ_BASE = 0; --rope-freq-scale N LLAMA_ARG_ROPE_FREQ_SCALE = 0
--yarn-orig-ctx N LLAMA_ARG_YARN_ORIG_CTX = 0; --yarn-ext-factor N LLAMA_ARG_YARN_EXT_FACTOR = -1
--yarn-attn-factor N LLAMA_ARG_YARN_ATTN_FACTOR = -1; --yarn-beta-slow N LLAMA_ARG_YARN_BETA_SLOW = -1
--yarn-beta-fast N LLAMA_ARG_YARN_BETA_FAST = -1
""",
    "the KV cache has one type": """
-ctk --cache-type-k TYPE LLAMA_ARG_CACHE_TYPE_K = f16; -ctv --cache-type-v TYPE LLAMA_ARG_CACHE_TYPE_V = f16
""",
    "the whole model is on one device; CUDA_VISIBLE_DEVICES says which GPU": """
-ot --override-tensor PATTERN=TYPE LLAMA_ARG_OVERRIDE_TENSOR; -cmoe --cpu-moe LLAMA_ARG_CPU_MOE = off
-ncmoe --n-cpu-moe N LLAMA_ARG_N_CPU_MOE = 0; -ncffn --n-cpu-ffn N LLAMA_ARG_N_CPU_FFN = 0
--moe-cache-mib N LLAMA_ARG_MOE_CACHE_MIB = 0; -sm --split-mode MODE LLAMA_ARG_SPLIT_MODE = none layer
-ts --tensor-split SHARES LLAMA_ARG_TENSOR_SPLIT; -mg --main-gpu N LLAMA_ARG_MAIN_GPU = 0
--rpc SERVERS LLAMA_ARG_RPC
""",
    "all chats share one pool, and each may use all of it": """
-kvu --kv-unified ! -no-kvu --no-kv-unified LLAMA_ARG_KV_UNIFIED = on
--kv-unified-per-slot N LLAMA_ARG_KV_UNIFIED_PER_SLOT
""",
    "there is no such sampler": """
--adaptive-target N = -1
--spec-synth-len N LLAMA_ARG_SPEC_SYNTH_LEN; --spec-synth-rates RATES LLAMA_ARG_SPEC_SYNTH_RATES
""",
    "text is read and written in one way: templates are Jinja, special tokens are not shown": """
--jinja ! --no-jinja LLAMA_ARG_JINJA = on; -sp --special; -e --escape ! --no-escape = on
--skip-chat-parsing ! --no-skip-chat-parsing LLAMA_ARG_SKIP_CHAT_PARSING = off
--prefill-assistant ! --no-prefill-assistant LLAMA_ARG_PREFILL_ASSISTANT = off
--reasoning-preserve ! --no-reasoning-preserve LLAMA_ARG_REASONING_PRESERVE
""",
    "only text goes in and out": """
-mm --mmproj FILE LLAMA_ARG_MMPROJ; -mmu --mmproj-url URL LLAMA_ARG_MMPROJ_URL; -mv --model-vocoder FILE
-hfv -hfrv --hf-repo-v OWNER/NAME LLAMA_ARG_HF_REPO_V; -hffv --hf-file-v FILE LLAMA_ARG_HF_FILE_V
--tts-use-guide-tokens
""",
    "it is not there yet": """
--embd-normalize N = 2
--rerank --reranking LLAMA_ARG_RERANKING = off; --spm-infill; --slot-save-path DIR LLAMA_ARG_SLOT_SAVE_PATH
""",
    "the server runs nothing and fetches nothing for a model": """
--tools NAMES LLAMA_ARG_TOOLS; --tools-runtime KIND LLAMA_ARG_TOOLS_RUNTIME
--mcp-servers-config FILE LLAMA_ARG_MCP_SERVERS_CONFIG; --mcp-servers-json JSON LLAMA_ARG_MCP_SERVERS_JSON
-ag --agent ! -no-ag --no-agent LLAMA_ARG_AGENT = off
--ui-mcp-proxy --webui-mcp-proxy ! --no-ui-mcp-proxy --no-webui-mcp-proxy LLAMA_ARG_UI_MCP_PROXY = off
""",
    "a server of its own in front does that": """
--ssl-key-file FILE LLAMA_ARG_SSL_KEY_FILE; --ssl-cert-file FILE LLAMA_ARG_SSL_CERT_FILE
--api-prefix PREFIX LLAMA_ARG_API_PREFIX
--cors-methods METHODS LLAMA_ARG_CORS_METHODS; --cors-headers HEADERS LLAMA_ARG_CORS_HEADERS
--cors-credentials ! --no-cors-credentials LLAMA_ARG_CORS_CREDENTIALS = off
""",
    "one model is served, and MODEL or --hf-repo names it": """
-dr --docker-repo NAME LLAMA_ARG_DOCKER_REPO; --models-dir DIR LLAMA_ARG_MODELS_DIR
--models-preset FILE LLAMA_ARG_MODELS_PRESET; --embd-gemma-default; --embd-bge-small-en-default
--embd-e5-small-en-default; --embd-gte-small-default; --fim-qwen-1.5b-default; --fim-qwen-3b-default
--fim-qwen-7b-default; --fim-qwen-7b-spec; --fim-qwen-14b-spec; --fim-qwen-30b-default; --gpt-oss-20b-default
--gpt-oss-120b-default; --vision-gemma-4b-default; --vision-gemma-12b-default; --tts-oute-default
""",
    "it would tell something and end, and there is nothing to tell": """
-cl --cache-list; --completion-bash; --list-devices; --license
""",
}


def _flag(line: str, fate: Fate, why: str = "", field: str = "", read: texts.Read = str) -> LlamaFlag:
    told, _, neutral = line.partition(" = ")
    on, _, off = told.partition(" ! ")
    words = f"{on} {off}".split()
    variables = tuple(word for word in words if re.fullmatch(r"[A-Z]+_[A-Z0-9_]+", word))
    value = " ".join(word for word in words if not word.startswith("-") and word not in variables)
    names, off_names = (tuple(word for word in side.split() if word.startswith("-")) for side in (on, off))
    return LlamaFlag(names, off_names, value, variables, tuple(neutral.split()), fate, why, field, read)


def _flags() -> Iterator[LlamaFlag]:
    for field, line, read in _HONOURED:
        yield _flag(line, "honoured", field=field, read=read)
    lists: tuple[tuple[Fate, Mapping[str, str]], ...] = (("no effect", _NO_EFFECT), ("refused", _REFUSED))
    for fate, groups in lists:
        for why, lines in groups.items():
            for line in lines.replace("\n", ";").split(";"):
                if line.strip():
                    yield _flag(line.strip(), fate, why)


LLAMA_FLAGS = tuple(_flags())
BY_NAME = {name: flag for flag in LLAMA_FLAGS for name in (*flag.names, *flag.off_names)}


def _same(text: str, other: str) -> bool:
    try:
        return float(text) == float(other)
    except ValueError:
        return text == other
