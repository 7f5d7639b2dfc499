"""Tell by its form whether a line states an error, and which part of it says what."""

import re

from rdma_images.facts.failures import Failure

MAX_QUOTE_LENGTH = 240  # characters of a line that is quoted
CALL = re.compile(r"\s*\w+_\w+(?:\(\))? ")  # the name of a function that a line begins with
MIN_WORDS = 3  # of a line that states an error and is not marked as one
QUOTED_TAIL = 80  # characters of its end
QUOTED_BEFORE = 40  # characters before what says the kind, in a line that is too long

EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*|\w*(?:error|timeout)))(?:\([\w.]*\))?(?::(?=\s|$)|\s*$)"
)
# Exceptions that Python's own types name, in code that has nothing to do with a network.
PROGRAM_EXCEPTION = re.compile(
    r"(?:\w+\.)*(?:AssertionError|AttributeError|ImportError|IndexError|KeyError|ModuleNotFoundError|NameError|"
    r"NotImplementedError|RecursionError|SyntaxError|IndentationError|TypeError|UnboundLocalError|"
    r"UnicodeDecodeError|ValueError|ZeroDivisionError)"
)
RAISED = re.compile(r"(?<![\w.-])[A-Za-z_][\w.]*(?:Error|Exception)(?:\([\w.]*\))?: ")
# The codes of gRPC and absl, which XLA and Ray write before a message.
STATUS = (
    "INVALID_ARGUMENT|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|UNIMPLEMENTED|INTERNAL|UNAVAILABLE|"
    "DATA_LOSS|UNAUTHENTICATED|PERMISSION_DENIED"
)
# A line that a program marks as an error. A metric of that name has no words.
ERROR = re.compile(
    r"(?:(?<![\w.-])(?:[A-Za-z_][\w.]*(?:Error|Exception|Failure|Timeout)|"
    r"(?:[\w-]+: )?(?:[Ee]rror|ERROR|[Ff]atal|FATAL))"
    r"(?:\]|\([\w.]*\))?\s*: |what\(\): |Value error, |(?<![\w.-])(?:panic|PANIC|ABORT): |Caused by: (?=\S)|"
    r"(?<![\w.-])(?:ERROR|FATAL|CRITICAL)(?:\]|\b)[\s|:\]-]*(?:\[[\w./:-]+\]\s*)?(?=[A-Za-z(])|"
    r"\blevel=(?:error|fatal) (?:\w+=\S+ )*msg=|"
    r"(?:^|: |\[)[EF]\d* .*\.(?:cc|cpp|h|cu|go|py):\d+\] |错误\W|报错\W|\b(?:[Cc]ritical|[Ff]atal)(?: \w+)? [Ee]rror\b|"
    rf"(?<![\w.-])(?:{STATUS}): )"
    r"(?=.*(?:[A-Za-z]{3}|[^\x00-\x7f]))\s*\S.*",
    re.ASCII,
)
# In lower case: a line that no program marks, with words of failing and no number after them that counts them.
PROBABLE = re.compile(
    r"(?<![\w.=/-])(?:fail(?:ed|ure|s)|cannot|can't|could(?: not|n't)|unable to|not found|"
    r"not (?:available|supported|valid|reachable|initialized|installed|enough)|unavailable|invalid|"
    r"incompatible|unsupported|mismatch(?:ed)?|no such|do(?:es)?(?: not|n't) (?:exist|match|support)|"
    r"denied|timed out|timeout|refused|unreachable|unexpected(?:ly)?|exceed(?:s|ed)|insufficient|"
    r"crash(?:ed)?|abort(?:ed|ing)|corrupt(?:ed)?|killed|illegal|missing|(?:is|went|goes) down|lost|fault|"
    r"error (?:calling|returned|reported|creating|occurred|while|during|opening|reading|writing)|is not in|"
    r"no \w+ were able|"
    r"errors? (?:code )?(?:is |=|:)? ?-?[1-9]\d*|error: -[1-9]\d*)"
    # A setting or a count of that name.
    r"(?!\w)(?!\s*[:=]\s*(?:[\d\[{(]|true|false|none|null)|=|[\"']? *:? *0\b)|"
    r"失败|错误|无法|找不到|未找到|超时|失敗|エラー|실패|fehlgeschlagen|introuvable|échec|impossible d|"
    r"не найден|не удалось",
)
# In lower case: what programs say that go on.
GOES_ON = re.compile(
    r"fall(?:s|ing|en)?[ -]?back(?!.* not )|ignor|skip|continu|optional|deprecat|instead|retr[iy]|attempting|"
    r"non-fatal|harmless|recover|already (?:been )?registered|\bwill (?:use|be (?:used|disabled))"
)
# And what else they say without a failure, and the source of a program.
HARMLESS = re.compile(
    r"for some reason|newly|process group|job control|default|disabl|attempt|succe|"
    r"\bpass(?:ed|ing)\b|\bwill (?:be|not|fall)|\b(?:if|unless|when|whether)\b|please (?:note|cite)|consider|"
    r"performance|not (?:an? )?(?:error|fatal|critical)|warn|restart|\b(?:no|0|zero) "
    r"(?:failed|failures|errors)|detecting|waiting up to|"
    r"jobs? (?:has |was |been )*(?:failed|aborted)|exit code|troubleshoot|may be|might|usage:|\bset to\b|"
    r"^\s*[#$>]|^\s*[\w-]+=|"
    r"^\s*(?:def|if|for|raise|return|assert|except|try|import|from|class|echo)\b",
)
# What a message says of reasons that it cannot know; none of them is a fact of this job.
GUESSES = re.compile(
    r"(?:This|It) (?:can|could|may|might) |(?:potential|possible) (?:root )?causes|"
    r"\b(?:Maybe|Probably|Perhaps) |usually (?:is )?(?:due to|caused by)|likely due to|\(?e\.g\.|for example"
)
WARNING = re.compile(
    r"\[W\d*\b|(?<!NCCL )\bWARN(?:ING)?\b|[Ww]arning:|[Rr]etry(?! count)|RETRY|attempt \d|"
    r"going to \S+ instead|[Ff]alling back|[Ii]gnoring|[Ss]kipping|[Uu]sing (?:the )?default|[Cc]ontinuing|"
    r"[Nn]on-fatal|\blevel=warn"
)
# What says little of a failure: the warnings of glog, too, of which TensorFlow and XLA write many in each job, and the
# level with which NCCL 2.32 names each network that is not there.
INFORMATION = re.compile(
    r"(?<![\w=])(?:INFO|DEBUG|NCCL ATTN)\b|<(?:info|warn)>|"
    r"^[IWD]\d{4,8} |(?:^|: )[IWD] \S+:\d+\]|\blevel=(?:info|debug)"
)
# What a line of a long message begins its cause with.
REASON = re.compile(r"\b(?:[Rr]eason|(?:[Rr]oot )?[Cc]ause)\b ?(?:is)?: ?\S")
# One line of the stack that MPICH and its like write after an error; its last one is the deepest.
STACK = re.compile(r"^(?:.*\s)?(?:\w+|\(unknown\))\(\d*\)[. ]*: *(?P<error>\S.*)?$")


def states_error(text: str) -> bool:
    """Return whether a program marks the line as an error."""
    return ERROR.search(text) is not None


def probably_states_error(text: str) -> bool:
    """Return whether an unmarked line has words of failing, and none of going on."""
    text = WARNING.sub("", text)
    has_words = len(text.split()) >= MIN_WORDS or not text.isascii() or CALL.match(text)
    lower = text.lower()
    return bool(has_words) and PROBABLE.search(lower) is not None and not (continues(text) or HARMLESS.search(lower))


def continues(text: str) -> bool:
    """Return whether a line says that its program goes on."""
    return GOES_ON.search(text.lower()) is not None


def quote(text: str, rule: Failure | None = None) -> str:
    """Return the part of a line that says something, with the words that `rule` knows it by.

    Of a line that is too long the end is kept, too: messages that hold others have the first cause last.
    """
    start = (RAISED if rule else ERROR).search(text)
    quoted = text[start.start() :] if start else text.strip()
    position = rule.position(quoted) if rule else 0
    if position > MAX_QUOTE_LENGTH // 2:
        quoted = f"…{quoted[position - QUOTED_BEFORE :]}"
    if len(quoted) > MAX_QUOTE_LENGTH:
        quoted = f"{quoted[: MAX_QUOTE_LENGTH - QUOTED_TAIL]} … {quoted[-QUOTED_TAIL:]}"
    return quoted.strip()
